-- Whether others rely on a charge: `ledger/live_pods.py` and `_confirm` of `ledger/operations.py`, on Redis.

-- Return since when a Pod is waited for that was not seen yet; false or nil for any other.
local function waited_since(key, uid)
  local asked = waits[key] and waits[key][uid]
  if asked == nil then
    asked = tonumber(redis.call('ZMSCORE', key, uid)[1])
  end
  return asked
end

-- Another call relies on a charge: the wait for a Pod that was not seen yet is no longer that of its charge.
local function confirm(plan, uid, p, now)
  local since = waited_since(plan.waits_key, uid)
  if since and since > now - WAITED_US then
    wait_for(plan.waits_key, uid, p[POD_CHARGED_AT] - 1)
  end
end

return {since = waited_since, confirm = confirm}
