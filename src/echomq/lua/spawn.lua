-- verb: spawn
-- purpose: Add children to a running job, under its token: a name that it has already is answered and adds nothing.
-- section: Protocol, section 7
-- flags:
-- include: now, number, once, row, flows, begins, moment, limits, rota, read, place, emit, bell, erase, shelf, bury, lane, fence
-- flows: outbox, kin, dedup, nodes
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; dead zset; done zset; job:<id> hash; job:<id>:log list; job:<id>:children hash; job:<id>:results hash; job:<id>:held list; outbox zset; outbox:entries hash; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count; id tag; token integer; nonce tag; nodes words
-- reply: a verdict a node
-- verdicts: admitted; known; duplicate; skipped
-- refusals: EMQKIND; EMQSTATE; EMQGONE; EMQVERSION; EMQSTALE
-- events: enqueued
-- cost: O(log n) a node
-- bound: 256 nodes
-- moves: nothing -> pending; nothing -> schedule; nothing -> waiting
local kept, refused = recall()
if kept or refused then return kept or refused end

local id = ARGV[3]
local row, stale = fence(ARGV, 3, #ARGV, read)(id, ARGV[4], ARGV[5])
-- A server puts a word of its own before an error of one word.
if not row then return redis.error_reply(stale == 'EMQGONE' and 'EMQGONE ' .. id or stale) end --!guard fence
local nodes, wrong = read_nodes(ARGV, 6, true)
if not nodes then return redis.error_reply(wrong) end
if #nodes == 0 then return redis.error_reply('EMQKIND spawn: it has no nodes') end --!guard no-nodes
if meta[3] then return redis.error_reply('EMQSTATE closing') end --!guard closing
local verdicts, refusal = admit_nodes(ARGV, nodes, { spawner = id })
if not verdicts then return redis.error_reply(refusal) end
call('HSET', row_key(id), 'children', 1) --!write spawn-children
bell()
flush_tally()
remember(verdicts)
return verdicts
