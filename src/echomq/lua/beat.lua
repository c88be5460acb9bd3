-- verb: beat
-- purpose: A worker says that it is alive and what it runs; without a time to live, that it goes.
-- section: Protocol, section 2
-- flags: allow-oom
-- include: now, number
-- keys: meta hash; workers zset; worker:<tag> hash
-- argv: client tag; number count; ttl_ms ms; name text; host text; pid count; up_ms ms; concurrency count; running count; jobs text
-- reply: 1 if it is noted; 0 if it has gone, or if the queue is being closed
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n)
-- bound: 64 KiB, and 16 workers that are gone
-- moves:
local WORKERS, KEY = P .. 'workers', P .. 'worker:' .. CLIENT
local ttl, up, size = whole(ARGV[3], 0, 600000), whole(ARGV[7], 0, FAR), 0
for i = 4, #ARGV do
  size = size + #ARGV[i]
end
if not (ttl and up) or size > 65536 then return redis.error_reply('EMQKIND beat: a time is out of range, or it says too much') end --!guard argv
if ttl == 0 then
  call('ZREM', WORKERS, CLIENT) --!write beat-leave
  call('DEL', KEY) --!write beat-gone
  return 0
end
if meta[3] then return 0 end --!guard beat-closing
local gone = call('ZRANGE', WORKERS, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, 16) --!bound beat
if #gone > 0 then call('ZREM', WORKERS, unpack(gone)) end --!write beat-others
-- First what may be refused: nothing may be written that would stay for ever.
local known, any = call('PEXPIRE', KEY, ttl), call('PEXPIRE', WORKERS, ttl) --!write beat-again
call('ZADD', WORKERS, NOW + ttl, CLIENT) --!write beat-enter
if any == 0 then call('PEXPIRE', WORKERS, ttl) end --!write beat-set-ends
local said = { 'name', ARGV[4], 'host', ARGV[5], 'pid', ARGV[6], 'concurrency', ARGV[8], 'running', ARGV[9], 'jobs', ARGV[10] }
call('HSET', KEY, 'beat', NOW, 'since', NOW - up, unpack(said)) --!write beat
if known == 0 then call('PEXPIRE', KEY, ttl) end --!write beat-ends
return 1
