-- Details of a plan, which few acquires need. They are decoded at the first use in a call.

local function details_of(plan)
  local details = plan.details
  if not details then
    local _, DETAILS_FIELDS = cmsgpack.unpack_limit(ARGV[1], DETAILS_LENGTH, plan.details_at)
    details = {
      breaker_ttl = breaker_ttl_ms, cluster = cluster, tag = tag, channel = channel, quota = quota, rules = rules,
      pool_live = pool_live, pool_standing = pool_standing, counts_apart = counts_apart,
    }
    plan.details = details
  end
  return details
end
