-- Triggers of a breaker: `core/breaker/trip_detection.py`, on Redis.

-- Return a duration exactly, in the largest unit that keeps it whole.
local function span(us)
  if us % 1000000 == 0 then
    return string.format('%.0fs', us / 1000000)
  elseif us % 1000 == 0 then
    return string.format('%.0fms', us / 1000)
  end
  return string.format('%.0fus', us)
end

-- Rules by the cause of their trips: errors in percent, any error, or microseconds of latency against a mean.
local RULES = {
  [BREAKER.CAUSE.ERROR_RATE] = {
    crossed = function(rule, run) return 100 * run[RUN_AMOUNT] >= rule[TRIGGER_THRESHOLD] * run[RUN_OUTCOMES] end,
    reason = function(rule, run)
      local share = string.format('%.0f of %.0f in the last', run[RUN_AMOUNT], run[RUN_OUTCOMES])
      return rule[TRIGGER_REASON_HEAD] .. share
    end,
  },
  [BREAKER.CAUSE.UNSCHEDULABLE] = {
    crossed = function(_, run) return run[RUN_AMOUNT] > 0 end,
    reason = function(rule, run)
      return rule[TRIGGER_REASON_HEAD] .. string.format('%.0f Pod%s', run[RUN_AMOUNT], run[RUN_AMOUNT] > 1 and 's' or '')
    end,
  },
  [BREAKER.CAUSE.LATENCY] = {
    crossed = function(rule, run) return run[RUN_AMOUNT] > rule[TRIGGER_THRESHOLD] * run[RUN_OUTCOMES] end,
    reason = function(rule, run)
      local outcomes = run[RUN_OUTCOMES]
      local mean = math.ceil(run[RUN_AMOUNT] / (outcomes * 1000)) * 1000 -- rounded up, to be shown above the threshold
      return rule[TRIGGER_REASON_HEAD] .. string.format('%s over %.0f in the last', span(mean), outcomes)
    end,
  },
}

-- Pass the boundaries of a run's intervals: return the run that continues (or false), and of a trip its time, reason
-- and failed sources. A RUN has the number and the outcomes of its current interval, and in `later` a LATER for each
-- interval that has outcomes already. Sources contributed to the failures; a run's include its streak's.
local function pass_boundaries(run, rule, judged)
  if not run or not rule or run[RUN_INTERVAL] ~= rule[TRIGGER_INTERVAL_US] then
    return false
  end
  local interval, by = run[RUN_INTERVAL], RULES[rule[TRIGGER_CAUSE]]
  while judged >= (run[RUN_NUMBER] + 1) * interval do
    local crossed = run[RUN_OUTCOMES] >= rule[TRIGGER_MINIMUM] and by.crossed(rule, run)
    local streak, next_number, sources = crossed and run[RUN_STREAK] + 1 or 0, run[RUN_NUMBER] + 1, run[RUN_SOURCES] or {}
    if streak >= rule[TRIGGER_CONSECUTIVE] then
      return false, next_number * interval, by.reason(rule, run), known(sources)
    end
    local later = run[RUN_LATER] or {}
    local following = later[1]
    if following and (streak == 0 or following[LATER_NUMBER] == next_number) then
      run = RUN{
        interval = interval, number = following[LATER_NUMBER], outcomes = following[LATER_OUTCOMES],
        amount = following[LATER_AMOUNT], streak = streak, later = {unpack(later, 2)},
        sources = joined(streak > 0 and sources or {}, following[LATER_SOURCES] or {}),
      }
    elseif streak > 0 then
      run = RUN{
        interval = interval, number = next_number, outcomes = 0, amount = 0, streak = streak, later = later,
        sources = sources,
      }
    else
      return false
    end
  end
  return run
end

-- Count outcomes in their interval, unless it was evaluated already: return the run, and whether it changed.
local function count_in_run(run, rule, at, total, amount, sources, judged)
  if not rule then
    return false, false
  end
  local interval = rule[TRIGGER_INTERVAL_US]
  local number = math.floor(at / interval)
  if number < math.floor(judged / interval) then
    return run, false
  end
  if not run then
    return RUN{
      interval = interval, number = number, outcomes = total, amount = amount, streak = 0, later = {}, sources = sources,
    }, true
  end
  local current = LATER{
    number = run[RUN_NUMBER], outcomes = run[RUN_OUTCOMES], amount = run[RUN_AMOUNT], sources = run[RUN_SOURCES] or {},
  }
  local cells, is_there = {current, unpack(run[RUN_LATER] or {})}, false
  for index, cell in ipairs(cells) do
    if cell[LATER_NUMBER] == number then
      is_there = true
      cells[index] = LATER{
        number = number, outcomes = cell[LATER_OUTCOMES] + total, amount = cell[LATER_AMOUNT] + amount,
        sources = joined(cell[LATER_SOURCES] or {}, sources),
      }
    end
  end
  if not is_there then
    cells[#cells + 1] = LATER{number = number, outcomes = total, amount = amount, sources = sources}
    table.sort(cells, function(cell, other) return cell[LATER_NUMBER] < other[LATER_NUMBER] end)
  end
  local first = cells[1]
  return RUN{
    interval = run[RUN_INTERVAL], number = first[LATER_NUMBER], outcomes = first[LATER_OUTCOMES],
    amount = first[LATER_AMOUNT], streak = run[RUN_STREAK], later = {unpack(cells, 2)}, sources = first[LATER_SOURCES],
  }, true
end

local function count_outcomes(r, plan, at, outcome, source, judged)
  local good, bad, latency = outcome[OUTCOME_SUCCEEDED], outcome[OUTCOME_FAILED], outcome[OUTCOME_LATENCY_US]
  local is_slow = plan.latency and latency > plan.latency[TRIGGER_THRESHOLD] * (good + bad)
  local failed, slow = bad > 0 and {source} or {}, is_slow and {source} or {}
  local of_errors, of_latency
  r.errors, of_errors = count_in_run(r.errors, plan.error_rate, at, good + bad, bad, failed, judged)
  r.latency, of_latency = count_in_run(r.latency, plan.latency, at, good + bad, latency, slow, judged)
  r.changed = r.changed or of_errors or of_latency
  return of_errors or of_latency
end
