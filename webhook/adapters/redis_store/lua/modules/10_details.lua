-- Details of a plan, which few acquires need. They are decoded at the first use in a call.

local function details_of(plan)
  local details = plan.details
  if not details then
    local _, breaker_ttl, cluster, tag, channel, quota, rules =
      cmsgpack.unpack_limit(ARGV[1], DETAILS_VALUES, plan.details_at)
    details = {
      breaker_ttl = breaker_ttl, cluster = cluster, tag = tag, channel = channel, quota = quota, rules = rules,
    }
    plan.details = details
  end
  return details
end
