-- verb: trim
-- purpose: Drop what has been kept long enough: results past their time, and the dead beyond the queue's limits.
-- section: Protocol, sections 1 and 5
-- flags: allow-oom
-- include: now, number, emit, row, erase
-- keys: meta hash; done zset; dead zset; job:<id> hash; job:<id>:log list; dedup:<key> string; events stream; counts hash
-- argv: client tag; number count; bound count; dead_max count; dead_age_ms ms; dead_keep_ms ms
-- reply: how many jobs were dropped; as many as the bound means there may be more
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events: trimmed
-- cost: O(log n) a job
-- bound: bound
-- moves: done -> nothing; dead -> nothing
local bound = whole(ARGV[3], 1, 10000)
local dead_max = whole(ARGV[4], 0, FAR)
local dead_age = whole(ARGV[5], 0, FAR)
local dead_keep = whole(ARGV[6], 0, FAR)
if not (bound and dead_max and dead_age and dead_keep) then --!guard argv
  return redis.error_reply('EMQKIND trim: bound, dead_max, dead_age_ms or dead_keep_ms is out of range')
end

local dropped = 0
local function drop(id, state)
  erase(id)
  call('ZREM', P .. state, id) --!write drop-leave
  dropped = dropped + 1
end
for _, id in ipairs(call('ZRANGE', P .. 'done', '-inf', NOW, 'BYSCORE', 'LIMIT', 0, bound)) do --!bound trim-done
  drop(id, 'done')
end
-- The oldest dead go when they are too old, or too many; but nothing younger than `dead_keep` goes for number alone.
local over = call('ZCARD', P .. 'dead') - dead_max
local room = bound - dropped
local oldest = room > 0 and call('ZRANGE', P .. 'dead', 0, room - 1, 'WITHSCORES') or {} --!bound trim-dead
for i = 1, #oldest, 2 do
  local id, age = oldest[i], NOW - tonumber(oldest[i + 1])
  if age < dead_age and (over <= 0 or age < dead_keep) then break end --!guard trim-young
  over = over - 1
  drop(id, 'dead')
  tally('trimmed')
  emit('trimmed', id)
end
flush_tally()
return dropped
