-- Quota denials counted by a breaker: `core/breaker/{outcome_counting,triggers}.py`, on Redis; and its stored record.

-- Return (refused, would) after a guard's objection: a guard that is not enforced denies nothing but is reported.
local function objection(guard, enforced, would)
  if enforced then
    return guard, would
  end
  return 0, would + guard
end

local function is_excused(r, source, now)
  for _, one in ipairs(r.excused) do
    if (one[1] == source or one[1] == EVERY_SOURCE) and now < one[2] then
      return true
    end
  end
  return false
end

-- Whether a limit of the service itself is exceeded, of its windows or on its live Pods.
local function is_of_its_own(b, over)
  for _, use in ipairs(over) do
    if use[1] <= b.own_limits or use[1] > b.limits then
      return true
    end
  end
  return false
end

-- Record that quota denied a Pod of `source`; return the reason and the events if the breaker must trip. Only CLOSED
-- counts them: a probe denied by quota proves nothing.
local function quota_event(r, plan, b, over, source)
  local now = b.now
  -- If only the pool is exceeded, another member may be the cause.
  if r.state ~= 'CLOSED' or not is_of_its_own(b, over) or is_excused(r, source, now) then
    return false
  end
  local count, within, by_controller, reason = unpack(details_of(plan).quota)
  local events, is_counted = {}, false
  for _, event in ipairs(r.events) do
    if event[1] > now - within then
      events[#events + 1] = event
      is_counted = is_counted or event[2] == source
    end
  end
  if not by_controller or not is_counted then
    events[#events + 1] = {now, source}
    if #events >= count then
      return reason, events
    end
  elseif #events == #r.events then
    return false -- not written again: with 1,000 events a record has 50 KB
  end
  r.events, r.changed = events, true
  return false
end

local function lasts_ms(r)
  return math.max(details_of(r.plan).breaker_ttl, (r.open_until - r.now) / 1000 + DAY_MS)
end

local function write_breaker(key, r)
  local packed = cmsgpack.pack({
    r.state, r.generation, r.since, r.open_until, r.reason, r.successes, r.leases, r.errors, r.latency, r.events,
    r.failed, r.early, r.tripped_at, r.tripped_by, r.reset_at, r.excused, r.asked, r.passed, r.alone,
  })
  redis.call('SET', key, packed, 'PX', string.format('%.0f', lasts_ms(r)))
end

return {
  bucket_at = bucket_at, free_at = free_at, objection = objection, quota_event = quota_event,
  lasts_ms = lasts_ms, write_breaker = write_breaker,
}
