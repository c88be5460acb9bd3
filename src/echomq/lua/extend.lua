-- verb: extend
-- purpose: Renew leases; the same answer carries cancel requests, should their event have been missed.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, row, read, torn, items, fence
-- keys: meta hash; active zset; lane:<name>:active zset; job:<id> hash; counts hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; lease_ms ms
-- reply: a verdict an item
-- verdicts: ok; cancel
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQVERSION
-- events:
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> active
local longest = tonumber(meta[5]) or 0
local fenced = fence(ARGV, 3, 4, read)
local verdicts = each(3, 4, function(at)
  local id = ARGV[at]
  local lease = whole(ARGV[at + 3], 1, 604800000)
  if not lease then return 'EMQKIND lease_ms ' .. ARGV[at + 3] end --!guard lease
  local row, refusal = fenced(id, ARGV[at + 1], ARGV[at + 2])
  if not row then return refusal end --!guard fence
  if lease > longest then
    longest = lease
    call('HSET', META, 'lease_max_ms', lease) --!write lease-max
  end
  if row.lane then call('ZADD', lane_active(row.lane), NOW + lease, id) end --!write lane-lease
  call('ZADD', ACTIVE, NOW + lease, id) --!write lease
  return row.cancel and 'cancel ' .. row.cancel or 'ok'
end)
flush_tally()
return verdicts
