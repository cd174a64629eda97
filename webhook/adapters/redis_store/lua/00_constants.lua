-- Constants of the script. `script.py` replaces them by their values, and the names of fields and records by what they
-- stand for: each local variable of the chunk that a function refers to takes time when the function is created, at each call.

local LIVE = 65 -- buckets of a window
local BUCKET_US_PER_SECOND = 15625
local BEHIND_US = 2000000
local PATIENCE_US = 10000000
local NEVER = -1
-- Of a breaker's record with many quota events: its first byte, and from how many events on it has this form.
local LONG_RECORD = 220
local LONG_EVENTS = 16
-- The guard that denied; `would` is their sum.
local BY_BREAKER = 1
local BY_QUOTA = 2
local SURGE_US = 600000000
local KNOWN_US = 600000000
local RETURNED_US = 60000000 -- longer than any replica waits for the others
local LONG_US = 600000000 -- retention beyond expiry, in case the server's clock steps back
local WAITED_US = 3600000000
local WAITED_TTL_MS = 4260000
local LIVE_TTL_MS = 86400000
local DAY_MS = 86400000
