-- verb: set_lane
-- purpose: Change a lane's settings: weight, limit, rate, pause. They survive an empty lane.
-- section: Protocol, sections 5 and 6
-- flags: allow-oom
-- include: now, number, once, row, begins, limits, rota, bell, lane, setting
-- keys: meta hash; pending zset; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list
-- argv: client tag; number count; lane text; name text; value text
-- reply: 1 if anything changed, else 0
-- verdicts:
-- refusals: EMQKIND; EMQSTATE; EMQVERSION; EMQSTALE
-- events:
-- cost: O(log n)
-- bound: one lane; any number of settings
-- moves:
local kept, refused = recall()
if kept or refused then return kept or refused end

local name = ARGV[3]
if not lane_fits(name) or #ARGV % 2 == 0 then return redis.error_reply('EMQKIND set_lane: its lane or settings are malformed') end --!guard argv
if meta[3] then return redis.error_reply('EMQSTATE closing') end --!guard closing
local text = call('HGET', LANES, name)
local lane = read_lane(text)
local limits = lane.limits or read_limits('0 0 0 0 0 0 0 0')
lane.limits = limits
local before = told(limits)
local known = {
  weight = function(value)
    limits.weight = value == '' and 0 or whole(value, 1, 1000)
    return limits.weight ~= nil
  end,
  limit = function(value)
    -- The leases of jobs without a lane stand in `active` alone: there is no set to count them by.
    return (name ~= '' or value == '') and set_limit(limits, value) --!guard no-lane-limit
  end,
  rate = function(value)
    return set_rate(limits, value)
  end,
  paused = function(value)
    if value == '' then
      limits.paused, limits.till = 0, 0
    elseif limits.paused == 0 then
      limits.paused = NOW
    end
    return value == '' or value == '1'
  end,
}
for i = 4, #ARGV, 2 do
  local set, value = known[ARGV[i]], ARGV[i + 1]
  if not set or not set(value) then return redis.error_reply('EMQKIND ' .. ARGV[i] .. ' ' .. value) end --!guard setting
end
if told(limits) == before then --!guard unchanged
  remember(0)
  return 0
end
if not meta[1] then call('HSET', META, 'protocol', VERSION) end --!write meta
begin_rota() --!write first-setting
if lane.where == 'c' then --!guard looked-at-anew
  -- Whatever has closed it, that is looked at anew, and not only when some starts have gathered.
  call('ZREM', CLOSED, name)
  lane.where, lane.waits = '-', true
end
write_lane(name, lane) --!write settings
touch(name) --!write touched
bell()
remember(1)
return 1
