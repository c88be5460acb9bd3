-- verb: read_job
-- purpose: One job in full: its row, its score in the set of its state, who runs it, and its log if asked.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, row, states
-- keys: meta hash; pending zset; lane:<name>:pending zset; active zset; schedule zset; dead zset; done zset; waiting zset; worker:<tag> hash; job:<id> hash; job:<id>:log list
-- argv: client tag; number count; id tag; with_log count
-- reply: now ms; row; score or nothing; log lines; the name of the worker that has it, or nothing. An absent job: now ms, empty row
-- verdicts:
-- refusals: EMQVERSION
-- events:
-- cost: O(log n), and the size of the job
-- bound: one job
-- moves:
local id = ARGV[3]
local row = call('HGETALL', row_key(id))
if #row == 0 then return { NOW, row } end
local place = call('HMGET', row_key(id), 'state', 'lane', 'holder')
local set = state_set(place[1], place[1] == 'pending' and place[2] or '')
local score = set and call('ZSCORE', set, id)
local log = {}
if ARGV[4] == '1' then log = call('LRANGE', row_key(id) .. ':log', 0, -1) end
-- A nonce begins with its client's tag.
local holder = place[1] == 'active' and string.match(place[3] or '', '^[^.]+') --!guard held-now
local worker = holder and call('HGET', P .. 'worker:' .. holder, 'name')
return { NOW, row, score or '', log, worker or '' }
