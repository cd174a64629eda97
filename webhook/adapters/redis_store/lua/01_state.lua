-- State of one call. `script.py` puts the rest of the script into one function: a function that is created in it copies
-- its references to this state, and would have to look up each of them among all locals of its own level.

local floor, max, min = math.floor, math.max, math.min
local NOTHING = {} -- never written to
local modules = {} -- by name: a module, or before its first use the function that defines it
local hashes = {} -- of rings, by key
local breakers = {} -- by key
local late, opened = 0, 0
local pods, places = {}, {} -- records of Pods and what follows them, by key
local costs = {} -- decoded, by their text: many Pods of a call have the same cost
local notes = {} -- of namespaces, by the key of their index
local waits = {} -- marks of Pods that are not seen yet, by key
local expiring = {} -- keys from which expired marks are removed
local lives = {} -- hashes of live Pods, by key

-- Call a command on a key with any number of values, some at a time: Lua's stack has an end.
local function call_with(command, key, values)
  for first = 1, #values, 1000 do
    redis.call(command, key, unpack(values, first, min(first + 999, #values)))
  end
end
