-- verb: age
-- purpose: The job next in turn, and how long it has been ready.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, row
-- keys: meta hash; pending zset; lane:<name>:pending zset; ring list; job:<id> hash
-- argv: client tag; number count
-- reply: id and age ms; empty when nothing is ready
-- verdicts:
-- refusals: EMQVERSION
-- events:
-- cost: O(log n)
-- bound: one job, 16 lanes
-- moves:
-- The first lanes of the ring, should some of them have been emptied since; without a rota there is one lane.
local lanes = meta[6] and call('LRANGE', P .. 'ring', 0, 15) or { '' } --!bound age
for _, lane in ipairs(lanes) do
  local head = call('ZRANGE', P .. lane_set(lane), 0, 0)
  if head[1] then
    local since = tonumber(call('HGET', row_key(head[1]), 'since')) or NOW
    return { head[1], math.max(0, NOW - since) }
  end
end
return {}
