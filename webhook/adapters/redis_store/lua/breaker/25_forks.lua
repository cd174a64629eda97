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
  local state, generation, since, tripped_at = v[VIEW_STATE], v[VIEW_GENERATION], v[VIEW_SINCE_US], v[VIEW_TRIPPED_AT_US]
  local passed, alone = v[VIEW_PASSED], v[VIEW_ALONE]
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
  local state, generation, passed, alone = v[VIEW_STATE], v[VIEW_GENERATION], v[VIEW_PASSED], v[VIEW_ALONE]
  local behind = max(0, alone > 0 and due.generation + 1 - (generation - passed) or due.generation - generation)
  count_opened(r, plan, state)
  r.state, r.generation, r.since, r.open_until = state, generation + behind, v[VIEW_SINCE_US], v[VIEW_OPEN_UNTIL_US]
  r.reason, r.successes = v[VIEW_REASON], v[VIEW_PROBES_SUCCEEDED]
  r.tripped_at, r.tripped_by, r.failed = v[VIEW_TRIPPED_AT_US], v[VIEW_TRIPPED_BY], v[VIEW_FAILED]
  r.early, r.leases = state == 'OPEN' and math.max(0, plan.probes - v[VIEW_EARLY]) or 0, {}
  r.passed, r.alone = passed, alone > 0 and alone + behind or 0
  forget_windows(r)
  r.changed, r.moved = true, true
end

-- Take a view if it wins over `due`, the advanced record; otherwise raise the record's generation above the view's.
local function take_proposal(r, plan, v, due)
  if holds(v, due) then
    return take(r, plan, v, due)
  end
  local generation, alone = v[VIEW_GENERATION], v[VIEW_ALONE]
  local is_another = v[VIEW_STATE] ~= due.state or v[VIEW_SINCE_US] ~= due.since or alone ~= due.alone
  if generation > due.generation or (alone > 0 and generation == due.generation and is_another) then
    r.passed, r.generation = r.passed + generation + 1 - r.generation, generation + 1
    r.changed, r.moved = true, true
  end
end

return {
  rules_of = rules_of, as_opened = as_opened, glance = glance, advance = advance, admits = admits,
  take_probe = take_probe, forced = forced, trip_by_quota = trip_by_quota, seen = seen, show_moves = show_moves,
  give_back_probe = give_back_probe, record_outcome = record_outcome, reset_removed = reset_removed,
  force_or_reset = force_or_reset, suppress_source_events = suppress_source_events, take_proposal = take_proposal,
  keep_time = keep_time, announce = announce,
}
