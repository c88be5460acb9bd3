-- verb: age
-- purpose: How many jobs each state has, and for how long the first of them has waited or run.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, number, row
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; dead zset; done zset; lane:<name>:pending zset; ring list; job:<id> hash
-- argv: client tag; number count; sample count
-- reply: for each of pending, active, schedule, waiting, dead, done: how many jobs; an id or nothing; ms since it is ready, runs, is due, waits, died, or should have gone: of what is ahead, below 0
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n + sample)
-- bound: one job of each state, 16 lanes, and of those that run as many as the sample says, at most 256
-- moves:
local sample = whole(ARGV[3], 0, 256)
if not sample then return redis.error_reply('EMQKIND age: its sample is out of range') end --!guard sample
local function since(id)
  local fine, moment = pcall(call, 'HGET', row_key(id), 'since')
  return math.max(0, NOW - (fine and tonumber(moment) or NOW)) --!guard head-since
end
local reply = {}
local function tell(state, id, ms, more)
  reply[#reply + 1] = { call('ZCARD', P .. state) + (more or 0), id or '', ms or 0 }
end

local laned = tonumber(call('HGET', META, 'laned')) or 0
-- The first lanes of the ring, should some of them have been emptied since; without a rota there is one lane.
local lanes = meta[6] and call('LRANGE', P .. 'ring', 0, 15) or { '' } --!bound age
local next_in_turn
for _, lane in ipairs(lanes) do
  next_in_turn = next_in_turn or call('ZRANGE', P .. lane_set(lane), 0, 0)[1]
end
tell('pending', next_in_turn, next_in_turn and since(next_in_turn), laned)
-- No set is ordered by when its jobs began: of those whose leases end first the one that has run for longest.
local longest, ms
for _, id in ipairs(sample > 0 and call('ZRANGE', ACTIVE, 0, sample - 1) or {}) do --!bound age-sample
  local ran = since(id)
  if not longest or ran > ms then longest, ms = id, ran end --!guard longest
end
tell('active', longest, ms)
for _, state in ipairs({ 'schedule', 'waiting', 'dead', 'done' }) do
  local head = call('ZRANGE', P .. state, 0, 0, 'WITHSCORES')
  tell(state, head[1], head[1] and NOW - tonumber(head[2]))
end
return reply
