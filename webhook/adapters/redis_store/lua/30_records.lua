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

-- Return what is stored of a Pod: an array of 13 values, and its place.
local function packed_pod(p, place)
  if p.record then
    return cmsgpack.pack(p.record) .. place
  end
  return '\157' .. p.charge .. p.windows .. p.origin .. place
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
  elseif held.charge and not held.record then -- charged in this call
    held.record = cmsgpack.unpack(packed_pod(held, ''))
  end
  local p = held.record
  return p and p[EXPIRES] > now and not p[REFUNDED] and p or nil, p
end

-- Return a new Pod. Its record is packed in parts, which are joined once, with its place: Redis hashes each string.
local function new_pod(plan, at, now, generation, is_probe, scope, cost_text, source)
  local expires = at + plan.remember
  return {
    expires = expires, now = now, generation = generation, source = source, record = false, windows = plan.packed_windows,
    charge = cmsgpack.pack(expires, at, generation, is_probe, false, plan.service, scope, plan.fleet, cost_text, false),
    origin = cmsgpack.pack(source, false),
  }
end
