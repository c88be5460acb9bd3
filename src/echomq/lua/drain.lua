-- verb: drain
-- purpose: Erase a lane's pending jobs, the next in turn first.
-- section: Protocol, sections 5 and 6
-- flags: allow-oom
-- include: now, number, once, emit, row, limits, rota, bell, read, place, erase, remove, round, lane
-- flows: shelf, bury, outbox, kin
-- keys: meta hash; waiting zset; pending zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash; schedule zset; dead zset; done zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count; lane text; bound count
-- reply: how many entries were handled; as many as the bound means there may be more
-- verdicts:
-- refusals: EMQKIND; EMQVERSION; EMQSTALE
-- events: removed; dropped; torn
-- cost: O(log n) a job
-- bound: bound
-- moves: pending -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local lane, bound = ARGV[3], whole(ARGV[4], 1, 10000)
if not bound or not lane_fits(lane) then return redis.error_reply('EMQKIND drain: its lane or bound is out of range') end --!guard argv
local queued = P .. lane_set(lane)
local ids = call('ZRANGE', queued, 0, bound - 1) --!bound drain
round(queued, ids, function(id)
  local row = read(id)
  if row.state ~= 'pending' or (row.lane or '') ~= lane then --!guard drain-state
    misplaced(id, row.state, queued)
    return
  end
  remove_now(id, row)
end)
bell()
flush_tally()
remember(#ids)
return #ids
