-- GCRA, the generic cell rate algorithm, as redis_rate and redis-cell have it: each limit is one number in one key, its
-- theoretical arrival time (TAT). All or nothing over KEYS, one a limit. ARGV, of each: hard, period (us), cost.
-- The answer: 0 where it was charged, else the microseconds to wait.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tats = redis.call('MGET', unpack(KEYS))
local after = {}
for index = 1, #KEYS do
  local hard, period, cost = ARGV[3 * index - 2], ARGV[3 * index - 1], ARGV[3 * index]
  local tat = math.max(tonumber(tats[index] or 0), now) + period / hard * cost
  if tat - period > now then
    return math.ceil(tat - period - now)
  end
  after[index] = tat
end
for index = 1, #KEYS do
  redis.call('SET', KEYS[index], string.format('%.17g', after[index]), 'PX', math.ceil((after[index] - now) / 1000))
end
return 0
