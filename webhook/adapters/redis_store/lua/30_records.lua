-- Records of admitted Pods, by uid: `ledger/tag_state.py`, on Redis.
-- A record: {expires, charged_at, generation, probe, refunded, service, scope, fleet, cost, high_water, windows,
-- source, settled}. `source` is the Pod's creator, only if its breaker counts outcomes; `settled`: its outcome was
-- recorded. `windows` is the plan's list of them as packed then, for a refund under a newer plan. The record is
-- followed by the Pod's place, namespace/name, unpacked: many Pods of a call share one record apart from the place.

local function cost_of(text)
  local cost = costs[text] or cjson.decode(text)
  costs[text] = cost
  return cost
end

-- Return a Pod's record if it counts, and the record even if it has expired or was refunded.
local function pod_of(key, strings, now)
  local held = pods[key]
  if held == nil then
    local packed, behind = strings[key], -1
    held = NOTHING
    if packed then
      held = {}
      behind, held.record = cmsgpack.unpack_one(packed)
    end
    pods[key], places[key] = held, behind > 0 and string.sub(packed, behind + 1) or ''
  end
  local p = held.record
  return p and p[EXPIRES] > now and not p[REFUNDED] and p or nil, p
end

local function new_record(plan, at, generation, scope, cost_text, source)
  return {
    at + plan.remember, at, generation, false, false, plan.service, scope, plan.fleet, cost_text, false,
    plan.packed_windows, source, false,
  }
end
