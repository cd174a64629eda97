-- Operation `acquire`, for new Pods: `ledger/operations.py`, on Redis.

-- Return the record of a Pod that is no probe. Pods of a call with the same cost share one.
local function shared_pod(plan, b, generation, scope, cost_text, source)
  local shared = b.records[cost_text]
  if not shared or shared.generation ~= generation or shared.source ~= source then
    shared = new_pod(plan, b.now, b.now, generation, false, scope, cost_text, source)
    b.records[cost_text] = shared
  end
  return shared
end

-- Check one Pod and, unless `peek`, charge it: all or nothing, each uid once. If `is_no_event`, the breaker does not count
-- a denial.
local function acquire(plan, reading, strings, ACQUIRE_FIELDS)
  local cost = cost_of(cost_text)
  own_key, pod_key = KEYS[own_key], KEYS[pod_key]
  local b = bound_of(plan, own_key, reading, not peek, KEYS[live_key])
  local home, now = b.home, b.now
  local known = pod_of(pod_key, strings, now)
  local r, moves, breaker, rules = breaker_of(plan.breaker_key, strings), NOTHING, false, false
  if plan.has_rules and not is_quiet(r, plan, now) then
    breaker, moves = module('breaker'), {}
    rules = breaker.rules_of(plan)
    r = (known or peek) and breaker.glance(plan.breaker_key, strings) or r
    breaker.advance(r, rules, now, moves)
  end
  if known then
    if not peek then
      module('waits').confirm(plan, string.sub(pod_key, plan.uid_at), known, now)
    end
    local used = judge(b, NOTHING, NOTHING)
    return ACQUIRE_ANSWER{
      at_us = shown(home, now), refused = 0, would = 0, charged = false, repeated = true, used = used, over = NOTHING,
      view = plan.has_rules and (breaker and breaker.seen(r, plan, home, now) or view_of(r, home, 0, 0)), moves = false,
      born_us = home.born, charged_us = shown(home, known[POD_CHARGED_AT]),
    }
  end

  local refused, would = 0, 0
  if breaker and not breaker.admits(r, rules, now, source) and not rules.degrades then
    refused, would = module('refusals').objection(BY_BREAKER, plan.breaker_enforced, would)
  end
  local asked, uid, live = refused == 0 and cost or NOTHING, string.sub(pod_key, plan.uid_at), b.live and module(b.live)
  local used, over = judge(b, asked, live and live.more(b, uid, asked, NOTHING) or NOTHING)
  if #over > 0 then
    refused, would = module('refusals').objection(BY_QUOTA, plan.quota_enforced, would)
  end
  if not peek then
    if refused == 0 then
      charge(plan, b, scope, cost, now, used)
      local generation, maker = r.generation, plan.has_outcomes and source or ''
      if breaker and breaker.take_probe(r, rules, now, uid, source, moves) then
        pods[pod_key] = new_pod(plan, now, now, generation, true, scope, cost_text, maker)
      else
        pods[pod_key] = shared_pod(plan, b, generation, scope, cost_text, maker)
      end
      places[pod_key] = place
      if live then
        live.add(plan, b, uid, cost, used)
      end
      wait_for(plan.waits_key, uid, now)
    elseif refused == BY_QUOTA and plan.has_quota and not is_no_event and not (breaker and breaker.forced(r, rules, now)) then
      local reason, events = module('refusals').quota_event(r, plan, b, over, source)
      if reason then
        breaker, moves = module('breaker'), moves == NOTHING and {} or moves
        breaker.trip_by_quota(r, breaker.rules_of(plan), now, reason, events, moves)
      end
    end
    r.plan, r.home, r.now = plan, home, now -- they determine its TTL if it has changed
  end
  local view = plan.has_rules and (breaker and breaker.seen(r, plan, home, now) or view_of(r, home, 0, 0))
  local reported = not peek and #moves > 0 and breaker.show_moves(moves, home)
  return ACQUIRE_ANSWER{
    at_us = now - home.offset, refused = refused, would = would, charged = refused == 0 and not peek, repeated = false,
    used = used, over = over, view = view, moves = reported, born_us = home.born,
    charged_us = 0,
  }
end
