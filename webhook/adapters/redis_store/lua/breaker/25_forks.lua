-- Conflict resolution between divergent states of one breaker: `core/breaker/forks.py`, on Redis.

local SHUT = BREAKER.SHUT

-- Whether the first of two lists of numbers is greater, in lexicographic order.
local function exceeds(one, other)
  for index, number in ipairs(one) do
    if number ~= other[index] then
      return number > other[index]
    end
  end
  return false
end

-- Whether a proposed view wins over a record that was advanced to now.
local function holds(v, r)
  local state, generation, since, tripped_at, passed, alone = v[1], v[2], v[3], v[8], v[12], v[13]
  local is_opened, was_opened = as_opened(state) == 1, as_opened(r.state) == 1
  if is_opened and since < r.reset_at then
    return false
  end
  local knows_trip = not was_opened or tripped_at >= r.tripped_at or is_forced(state)
  local decided, here = generation - passed, r.generation - r.passed
  if alone > 0 then
    local fork = decided - alone
    if is_forced(r.state) then
      return false
    elseif here == fork then
      return knows_trip
    elseif r.alone > 0 and here - r.alone == fork then
      return exceeds({SHUT[state], tripped_at, since}, {SHUT[r.state], r.tripped_at, r.since})
    elseif here > fork then
      return false
    end
  end
  return knows_trip and exceeds({decided, generation, SHUT[state]}, {here, r.generation, SHUT[r.state]})
end

local function take(r, plan, v, due)
  local behind = max(0, v[13] > 0 and due.generation + 1 - (v[2] - v[12]) or due.generation - v[2])
  count_opened(r, plan, v[1])
  r.state, r.generation, r.since, r.open_until, r.reason, r.successes = v[1], v[2] + behind, v[3], v[4], v[5], v[7]
  r.tripped_at, r.tripped_by, r.failed = v[8], v[9], v[11]
  r.early, r.leases = v[1] == 'OPEN' and math.max(0, plan.probes - v[10]) or 0, {}
  r.passed, r.alone = v[12], v[13] > 0 and v[13] + behind or 0
  forget_windows(r)
  r.changed, r.moved = true, true
end

-- Take a view if it wins over `due`, the advanced record; otherwise raise the record's generation above the view's.
local function take_proposal(r, plan, v, due)
  if holds(v, due) then
    return take(r, plan, v, due)
  end
  local is_another = v[1] ~= due.state or v[3] ~= due.since or v[13] ~= due.alone
  if v[2] > due.generation or (v[13] > 0 and v[2] == due.generation and is_another) then
    r.passed, r.generation = r.passed + v[2] + 1 - r.generation, v[2] + 1
    r.changed, r.moved = true, true
  end
end

return {
  rules_of = rules_of, as_opened = as_opened, glance = glance, advance = advance, admits = admits,
  take_probe = take_probe, forced = forced, trip_by_quota = trip_by_quota, seen = seen, moved = moved,
  give_back_probe = give_back_probe, record_outcome = record_outcome, reset_removed = reset_removed,
  force_or_reset = force_or_reset, suppress_source_events = suppress_source_events, take_proposal = take_proposal,
  keep_time = keep_time, announce = announce,
}
