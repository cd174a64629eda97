-- Modules: tables of functions that few acquires need, defined at the first use in a call.
-- Redis runs the whole chunk at each call, and creating its 138 functions took most of the time of an acquire. One of a
-- service whose breaker is CLOSED creates 28. With the arguments as flat values this has halved its CPU: 0.50 of the
-- former with 9 limits (0.41 to 0.56 by server and load), 0.6 to 0.8 in calls of 7 Pods.

local define_modules

local function module(name)
  if not next(modules) then
    modules = define_modules()
  end
  local found = modules[name]
  if type(found) == 'function' then
    found = found()
    modules[name] = found
  end
  return found
end
