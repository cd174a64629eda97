-- Modules: tables of functions that few acquires need, defined at the first use in a call.
-- Redis runs the whole chunk at each call, and creating all of its functions would be most of the time of an acquire.

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
