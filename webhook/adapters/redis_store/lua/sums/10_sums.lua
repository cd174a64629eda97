-- Sums beyond EXACT_AMOUNT_MAX: NAME has that, NAME* how many times the rest has it again, and NAME+ what is left.

-- Fill a sum up from the rest that is beside it.
local function fill(sums, name)
  local rest, times, room = sums[name .. '+'] or 0, sums[name .. '*'] or 0, EXACT_AMOUNT_MAX - sums[name]
  if rest < 0 then
    rest, times = rest + EXACT_AMOUNT_MAX, times - 1
  end
  if rest < room and times > 0 then
    sums[name], rest, times = EXACT_AMOUNT_MAX, rest + (EXACT_AMOUNT_MAX - room), times - 1
  else
    local filled = min(rest, room)
    sums[name], rest = sums[name] + filled, rest - filled
  end
  sums[name .. '+'], sums[name .. '*'] = rest ~= 0 and rest or nil, times ~= 0 and times or nil
end

local function fill_all(sums)
  local names = {}
  for name in pairs(sums) do
    names[#names + 1] = string.match(name, '^[^+*]+$')
  end
  for _, name in ipairs(names) do
    fill(sums, name)
  end
end

local function add_beyond(sums, name, amount)
  local sum, rest = sums[name] or 0, sums[name .. '+'] or 0
  local added = min(amount, EXACT_AMOUNT_MAX - sum)
  local more = amount - added
  sums[name] = sum + added
  if more >= EXACT_AMOUNT_MAX - rest then
    rest, sums[name .. '*'] = more - (EXACT_AMOUNT_MAX - rest), (sums[name .. '*'] or 0) + 1
  else
    rest = rest + more
  end
  sums[name .. '+'] = rest
  fill(sums, name)
end

return {add = add_beyond, fill_all = fill_all}
