-- Triggers of a breaker: `core/breaker/triggers.py`, on Redis.

-- Return a duration exactly, in the largest unit that keeps it whole.
local function span(us)
  if us % 1000000 == 0 then
    return string.format('%.0fs', us / 1000000)
  elseif us % 1000 == 0 then
    return string.format('%.0fms', us / 1000)
  end
  return string.format('%.0fus', us)
end

-- Rules by trigger: errors in percent, or microseconds of latency against a mean.
local RULES = {
  errors = {
    crossed = function(rule, run) return 100 * run[4] >= rule[1] * run[3] end,
    reason = function(rule, run) return rule[5] .. string.format('%.0f of %.0f in the last', run[4], run[3]) end,
  },
  latency = {
    crossed = function(rule, run) return run[4] > rule[1] * run[3] end,
    reason = function(rule, run)
      local mean = math.ceil(run[4] / (run[3] * 1000)) * 1000 -- rounded up, to be shown above the threshold
      return rule[5] .. string.format('%s over %.0f in the last', span(mean), run[3])
    end,
  },
}

-- Pass the boundaries of a run's intervals: return the run that continues (or false), and of a trip its time, reason
-- and failed sources. A run is {interval length, interval number, outcomes, amount, streak, later intervals, sources};
-- a later interval is {number, outcomes, amount, sources}. Sources contributed to the failures; a run's include its
-- streak's.
local function pass_boundaries(run, rule, judged, by)
  if not run or not rule or run[1] ~= rule[2] then
    return false
  end
  while judged >= (run[2] + 1) * run[1] do
    local crossed = run[3] >= rule[4] and by.crossed(rule, run)
    local streak = crossed and run[5] + 1 or 0
    if streak >= rule[3] then
      return false, (run[2] + 1) * run[1], by.reason(rule, run), known(run[7] or {})
    end
    local later = run[6] or {}
    local following = later[1]
    if following and (streak == 0 or following[1] == run[2] + 1) then
      local sources = joined(streak > 0 and run[7] or {}, following[4] or {})
      run = {run[1], following[1], following[2], following[3], streak, {unpack(later, 2)}, sources}
    elseif streak > 0 then
      run = {run[1], run[2] + 1, 0, 0, streak, later, run[7] or {}}
    else
      return false
    end
  end
  return run
end

-- Count outcomes in their interval, unless it was evaluated already: return the run, and whether it changed.
local function counted(run, rule, at, total, amount, sources, judged)
  if not rule then
    return false, false
  end
  local number = math.floor(at / rule[2])
  if number < math.floor(judged / rule[2]) then
    return run, false
  end
  if not run then
    return {rule[2], number, total, amount, 0, {}, sources}, true
  end
  local cells, there = {{run[2], run[3], run[4], run[7] or {}}, unpack(run[6] or {})}, false
  for index, cell in ipairs(cells) do
    if cell[1] == number then
      cells[index], there = {number, cell[2] + total, cell[3] + amount, joined(cell[4] or {}, sources)}, true
    end
  end
  if not there then
    cells[#cells + 1] = {number, total, amount, sources}
    table.sort(cells, function(one, other) return one[1] < other[1] end)
  end
  local first = cells[1]
  return {run[1], first[1], first[2], first[3], run[5], {unpack(cells, 2)}, first[4]}, true
end

local function count_outcomes(r, plan, at, outcome, source, judged)
  local good, bad, latency = outcome[1], outcome[2], outcome[3]
  local is_slow = plan.latency and latency > plan.latency[1] * (good + bad)
  local failed, slow = bad > 0 and {source} or {}, is_slow and {source} or {}
  local of_errors, of_latency
  r.errors, of_errors = counted(r.errors, plan.error_rate, at, good + bad, bad, failed, judged)
  r.latency, of_latency = counted(r.latency, plan.latency, at, good + bad, latency, slow, judged)
  r.changed = r.changed or of_errors or of_latency
  return of_errors or of_latency
end
