-- Charge of a group of Pods in one step: `ledger/group_charge.py`, on Redis.

local function add_to(sums, cost)
  for resource, amount in pairs(cost) do
    sums[resource] = min((sums[resource] or 0) + amount, EXACT_AMOUNT_MAX)
  end
end

-- Return the members, none if some are charged already; confirm those charges.
local function uncharged(plan, keys, members, strings, now)
  local found, repeated = {}, false
  for index, member in ipairs(members) do
    local key = KEYS[keys[index]]
    local known = pod_of(key, strings, now)
    if known then
      module('waits').confirm(plan, uid_of(plan, key), known, now)
      repeated = true
    else
      found[#found + 1] = {
        key = key, uid = uid_of(plan, key), place = member[GROUP_MEMBER_PLACE], cost_text = member[GROUP_MEMBER_COST_TEXT],
        source = member[GROUP_MEMBER_SOURCE],
      }
    end
  end
  return repeated and {} or found
end

-- The keys before the values are the records of the members, in their order. A breaker that is probing takes the group
-- as one Pod.
local function acquire_group(plan, reading, strings, ...)
  local keys, ACQUIRE_GROUP_FIELDS = {...}, select(-ACQUIRE_GROUP_LENGTH, ...)
  local b = bound_of(plan, KEYS[own_key], reading, true, KEYS[live_key])
  local home, now, live = b.home, b.now, b.live and module(b.live)
  local new, moves = uncharged(plan, keys, members, strings, now), {}
  local r, rules = breaker_of(plan.breaker_key, strings), plan.has_rules and breaker.rules_of(plan)
  if rules then
    r = #new == 0 and breaker.glance(plan.breaker_key, strings) or r
    breaker.advance(r, rules, now, moves)
  end
  local refused, would, asked, more, first = 0, 0, {}, {}, unpack(new)
  if first and rules and not breaker.admits(r, rules, now, first.source) and not rules.degrades then
    refused, would = module('refusals').objection(BY_BREAKER, plan.breaker_enforced, would)
  end
  for _, pod in ipairs(refused == 0 and new or NOTHING) do
    pod.cost = cost_of(pod.cost_text)
    add_to(asked, pod.cost)
    if live then
      add_to(more, live.more(b, pod.uid, pod.cost, NOTHING))
    end
  end
  local used, over = judge(b, asked, more)
  if #over > 0 then
    refused, would = module('refusals').objection(BY_QUOTA, plan.quota_enforced, would)
  end
  if first and refused == 0 then
    local generation = r.generation
    local is_probe = rules and breaker.take_probe(r, rules, now, first.uid, first.source, moves)
    for index, pod in ipairs(new) do
      charge(plan, b, scope, pod.cost, now, used)
      local maker = plan.has_outcomes and pod.source or ''
      pods[pod.key] = new_pod(plan, now, now, generation, is_probe and index == 1, scope, pod.cost_text, maker)
      places[pod.key] = pod.place
      if live then
        live.add(plan, b, pod.uid, pod.cost, used)
      end
      wait_for(plan.waits_key, pod.uid, now)
    end
  end
  if first then
    attach_plan(r, plan, home, now)
  end
  return ACQUIRE_ANSWER{
    at_us = shown(home, now), refused = refused, would = would, charged = first ~= nil and refused == 0,
    repeated = first == nil, used = used, over = over, view = rules and breaker.seen(r, plan, home, now),
    moves = first and #moves > 0 and breaker.show_moves(moves, home) or false, born_us = home.born,
    charged_us = 0,
  }
end
