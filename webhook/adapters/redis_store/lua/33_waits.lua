-- Admitted Pods that the watch has not shown yet: a sorted set of the tag, by the time of their charge.

-- Mark a Pod as not seen yet since `at`; false removes the mark.
local function wait_for(key, uid, at)
  local waited = waits[key] or {}
  waits[key], waited[uid] = waited, at
end
