-- Sums of amounts by name: exact, though Lua counts in doubles, which are so up to EXACT_AMOUNT_MAX. That is the most that
-- one Pod counts for. What a sum has beyond it is beside it, in module `sums`: whoever only reads finds the largest number,
-- and no limit is above that.

-- Add an amount; a negative one is taken away.
local function add(sums, name, amount)
  local before = sums[name] or 0
  local sum = before + amount
  if before < EXACT_AMOUNT_MAX and sum < EXACT_AMOUNT_MAX then
    sums[name] = sum
  else
    module('sums').add(sums, name, amount)
  end
end

-- Take away sums that are part of others.
local function subtract(sums, parts)
  local is_beyond = false
  for name, part in pairs(parts) do
    local sum = sums[name] or 0
    sums[name], is_beyond = sum - part, is_beyond or sum >= EXACT_AMOUNT_MAX
  end
  if is_beyond then
    module('sums').fill_all(sums)
  end
end
