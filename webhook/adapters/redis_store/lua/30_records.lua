-- Records of admitted Pods, by uid: `ledger/tag_state.py`, on Redis.
-- A record is a POD. `source` is the Pod's creator, only if its breaker counts outcomes; `settled`: its outcome was
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
  return p and p[POD_EXPIRES] > now and not p[POD_REFUNDED] and p or nil, p
end

-- Return a new Pod, with its record packed: in parts, because a plan has its windows packed.
local function new_pod(plan, at, now, generation, is_probe, scope, cost_text, source)
  local expires, packed = at + plan.remember, cmsgpack.pack
  local charge = packed(POD_BEFORE_WINDOWS_VALUES{
    expires = expires, charged_at = at, generation = generation, probe = is_probe, refunded = false,
    service = plan.service, scope = scope, fleet = plan.fleet, cost = cost_text, high = false,
  })
  local outcome = packed(POD_AFTER_WINDOWS_VALUES{source = source, settled = false})
  return {
    packed = POD_ARRAY .. charge .. plan.packed_windows .. outcome, lasts_ms = lasts_ms(expires, now),
    generation = generation, source = source, record = false,
  }
end
