-- verb: schedule_remove
-- purpose: A recurring schedule goes; the jobs it has made stay.
-- section: Protocol, section 5
-- flags: allow-oom
-- include:
-- keys: meta hash; schedules zset; schedule:<name> hash
-- argv: client tag; number count; name text
-- reply: a verdict
-- verdicts: ok
-- refusals: EMQGONE; EMQVERSION
-- events:
-- cost: O(log n)
-- bound: one schedule
-- moves:
local gone = call('ZREM', P .. 'schedules', ARGV[3]) --!write unslot
gone = gone + call('DEL', P .. 'schedule:' .. ARGV[3]) --!write undefine
if call('EXISTS', P .. 'schedules') == 0 then call('HDEL', META, 'schedules') end --!write no-schedules
return gone > 0 and 'ok' or 'EMQGONE'
