-- Passage of time, and probes while a breaker is not CLOSED: `core/breaker/{advance,probes}.py`, on Redis.

-- Drop the leases of probes whose time has passed.
local function expire(r, now, moves)
  local live, gone = {}, false
  for _, lease in ipairs(r.leases) do
    if lease[LEASE_EXPIRES] > now then
      live[#live + 1] = lease
    else
      gone = true
      moves[#moves + 1] = MOVE{
        old = r.state, new = r.state, at_us = lease[LEASE_EXPIRES], reason = EXPIRED, generation = r.generation,
        cause = BREAKER.CAUSE.PROBE_EXPIRED,
      }
    end
  end
  if gone then
    r.leases, r.changed = live, true
  end
end

local function advance(r, plan, now, moves)
  if is_forced(r.state) and r.open_until <= now then
    return move_by_time(r, plan, BREAKER.CAUSE.RELEASED, 'until has passed', moves)
  end
  if forced(r, plan, now) then
    return
  end
  if r.state == 'CLOSED' and (r.errors or r.latency) then
    local judged = now - late
    local errors, errors_at, errors_reason, errors_by = pass_boundaries(r.errors, plan.error_rate, judged)
    local latency, latency_at, latency_reason, latency_by = pass_boundaries(r.latency, plan.latency, judged)
    if errors_at and (not latency_at or errors_at <= latency_at) then
      trip(r, plan, plan.error_rate[TRIGGER_CAUSE], errors_at, errors_reason, errors_by, moves)
    elseif latency_at then
      trip(r, plan, BREAKER.CAUSE.LATENCY, latency_at, latency_reason, latency_by, moves)
    elseif errors ~= r.errors or latency ~= r.latency then
      r.errors, r.latency, r.changed = errors, latency, true
    end
  end
  if r.state == 'OPEN' and r.open_until <= now then
    expire(r, r.open_until, moves)
    move_by_time(r, plan, BREAKER.CAUSE.OPEN_FOR_PASSED, 'openFor passed', moves)
  end
  if #r.leases > 0 then
    expire(r, now, moves)
  end
end

local function live_count(r, now)
  local count = 0
  for _, lease in ipairs(r.leases) do
    count = count + (lease[LEASE_EXPIRES] > now and 1 or 0)
  end
  return count
end

-- Return how many Pods may still probe before `openFor` has passed; 0 unless all failed sources are known.
local function early_left(r, plan)
  return r.state == 'OPEN' and #r.failed > 0 and math.max(0, plan.probes - r.early) or 0
end

local function has_room(r, plan, now, source)
  if r.state == 'OPEN' then
    -- Only Pods of a controller that did not contribute to the failures.
    return early_left(r, plan) > 0 and string.sub(source, 1, 11) == 'controller:' and not contains(r.failed, source)
  end
  -- At least one more: if a new policy lowered `probes` to the number that succeeded already, it closes the breaker.
  return r.state == 'HALF_OPEN' and live_count(r, now) < math.max(plan.probes - r.successes, 1)
end

local function admits(r, plan, now, source)
  local held = forced(r, plan, now)
  if held then
    return held == 'FORCED_CLOSED'
  end
  return r.state == 'CLOSED' or has_room(r, plan, now, source)
end

local function count_success(r, plan, now, moves)
  r.successes, r.changed = r.successes + 1, true
  if r.successes >= plan.probes then
    local early, plural = r.state == 'OPEN' and 'early ' or '', r.successes > 1 and 's' or ''
    local reason = string.format('%.0f %sprobe%s succeeded', r.successes, early, plural)
    move(r, plan, BREAKER.CAUSE.PROBES_SUCCEEDED, now, reason, 0, moves)
  end
end

-- Make a charged Pod a probe, if one is wanted; return whether it is one.
local function take_probe(r, plan, now, uid, source, moves)
  if r.state == 'CLOSED' or forced(r, plan, now) or not has_room(r, plan, now, source) then
    return false
  end
  r.early, r.changed = r.early + (r.state == 'OPEN' and 1 or 0), true
  if plan.has_outcomes then
    r.leases = {unpack(r.leases)}
    r.leases[#r.leases + 1] = LEASE{uid = uid, expires = now + plan.probe_timeout, generation = r.generation}
  else
    count_success(r, plan, now, moves)
  end
  return true
end

-- Drop the unwanted leases; return how many.
local function drop_leases(r, is_unwanted)
  local leases, dropped = {}, 0
  for _, lease in ipairs(r.leases) do
    if is_unwanted(lease) then
      dropped = dropped + 1
    else
      leases[#leases + 1] = lease
    end
  end
  if dropped > 0 then
    r.leases, r.changed = leases, true
  end
  return dropped
end

-- Free the lease of a probe whose Pod was never created, unless it has expired, whether that was noticed or not.
local function give_back_probe(r, uid, now)
  local freed = drop_leases(r, function(lease) return lease[LEASE_UID] == uid and lease[LEASE_EXPIRES] > now end)
  if r.state == 'OPEN' then
    r.early = r.early - freed
  end
end

local function settle_probe(r, plan, now, lease, source, ok, moves)
  drop_leases(r, function(other) return other == lease end)
  if ok then
    return count_success(r, plan, now, moves)
  elseif r.state == 'OPEN' then
    return -- an early probe that fails proves nothing new
  end
  local failed = {unpack(r.failed)}
  if #failed > 0 and not contains(failed, source) then
    failed[#failed + 1] = source
  end
  move(r, plan, BREAKER.CAUSE.PROBE_FAILED, now, 'probe failed', now + plan.open_for, moves, known(failed))
end
