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

-- Return how long a record is kept.
local function lasts_ms(expires, now)
  return math.ceil((expires - now) / 1000) + 1000
end

-- Return a Pod's record if it counts, and the record even if it has expired or was refunded.
local function pod_of(key, strings, now)
  local held = pods[key]
  if not held then
    local packed = strings[key]
    if not packed then
      return nil, nil
    end
    local behind, record = cmsgpack.unpack_one(packed)
    held = {record = record}
    pods[key], places[key] = held, behind > 0 and string.sub(packed, behind + 1) or ''
  elseif not held.record then -- charged in this call
    held.record = cmsgpack.unpack(held.packed)
  end
  local p = held.record
  return p and p[EXPIRES] > now and not p[REFUNDED] and p or nil, p
end

-- Return a new Pod, with its record packed: an array of 13 values, in parts, since a plan has its windows packed.
local function new_pod(plan, at, now, generation, is_probe, scope, cost_text, source)
  local expires, packed = at + plan.remember, cmsgpack.pack
  local charge = packed(expires, at, generation, is_probe, false, plan.service, scope, plan.fleet, cost_text, false)
  return {
    packed = '\157' .. charge .. plan.packed_windows .. packed(source, false), lasts_ms = lasts_ms(expires, now),
    generation = generation, source = source, record = false,
  }
end
