-- purpose: settings by name, checked before the first is written.
-- defines: told, set_limit, set_rate
local MOST_LIMIT = 1000000
-- What somebody has set, without what time does to it.
local function told(limits)
  return table.concat({ limits.weight, limits.limit, limits.count, limits.per, limits.burst, limits.paused, math.max(limits.till, NOW) }, ' ')
end
-- Each takes a setting's text, '' to clear it, and answers whether it is one.
local function set_limit(limits, text)
  limits.limit = text == '' and 0 or whole(text, 1, MOST_LIMIT)
  return limits.limit ~= nil --!guard limit-fits
end
local function set_rate(limits, text)
  if text == '' then
    limits.count, limits.per, limits.burst, limits.tat = 0, 0, 0, 0 --!write no-rate
    return true
  end
  local count, per, burst = string.match(text, '^(%d+) (%d+) (%d+)$')
  limits.count, limits.per, limits.burst = whole(count, 1, MOST_LIMIT), whole(per, 1, 86400000), whole(burst, 1, MOST_LIMIT)
  if not (limits.count and limits.per and limits.burst) then return false end --!guard rate-fits
  pace(limits) -- from where the last rate stood: a change lets no burst through
  return true
end
