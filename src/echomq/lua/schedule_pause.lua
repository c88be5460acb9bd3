-- verb: schedule_pause
-- purpose: Let a recurring schedule rest, or go on at a slot.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, row, limits, rota, bell, slots
-- keys: meta hash; schedules zset; schedule:<name> hash; wake list
-- argv: client tag; number count; name text; paused count; digest tag; slot ms
-- reply: a verdict
-- verdicts: ok; same
-- refusals: EMQKIND; EMQGONE; EMQSTALE; EMQVERSION
-- events:
-- cost: O(log n)
-- bound: one schedule
-- moves:
local name, slot = ARGV[3], whole(ARGV[6], 0, FAR)
if not slot then return redis.error_reply('EMQKIND slot ' .. ARGV[6]) end --!guard argv
local key = schedule_key(name)
local now = call('HMGET', key, 'digest', 'paused', 'slot')
if not now[1] then return 'EMQGONE' end --!guard gone
if ARGV[4] == '1' then
  if now[2] and call('ZSCORE', SCHEDULES, name) == 'inf' then return 'same' end --!guard rests
  call('HSET', key, 'paused', NOW) --!write rest
  stand(name, tonumber(now[3]) or 0, true)
  return 'ok'
end
if not now[2] then return 'same' end --!guard goes-on
if now[1] ~= ARGV[5] or slot ~= 0 and slot <= NOW then return string.format('EMQSTALE %.0f', NOW) end --!guard slot-ahead
-- In this order: should the server refuse the second, it rests still, and can be told again.
stand(name, slot)
call('HDEL', key, 'paused') --!write go-on
bell()
return 'ok'
