-- verb: flow_take
-- purpose: Take entries of the outbox that are due, for half a minute; parents that have waited for a minute get one.
-- section: Protocol, section 7
-- flags: allow-oom
-- include: now, number, row, flows, limits, rota
-- flows: outbox
-- keys: meta hash; waiting zset; outbox zset; outbox:entries hash
-- argv: client tag; number count; bound count; cap_ms ms
-- reply: next ms; the score of what is taken; then of each entry its name and content
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n) an entry
-- bound: bound, at most 256; 1 MiB
-- moves:
local TAKEN, MOST_PARENTS, MOST_BYTES = 30000, 16, 1048576
local bound, cap = whole(ARGV[3], 1, 256), whole(ARGV[4], 1, 86400000)
if not bound or not cap then return redis.error_reply('EMQKIND flow_take: its bound or cap_ms is out of range') end --!guard argv
local till = taken_at(NOW + TAKEN)
if not FLOWS then return { cap, till } end --!guard no-flows
-- Who has waited for long asks.
local patient = call('ZRANGE', P .. 'waiting', '-inf', NOW - PATIENCE, 'BYSCORE', 'LIMIT', 0, MOST_PARENTS) --!bound patient
for _, id in ipairs(patient) do
  call('ZADD', P .. 'waiting', NOW, id) --!write patient
  if call('HEXISTS', ENTRIES, 'reconcile:' .. id) == 0 then owe(NOW, 'reconcile:' .. id, 'reconcile', '', id, '0') end --!guard reconcile-once
end
local reply, bytes = { cap, till }, 0
for _, entry in ipairs(call('ZRANGE', OUTBOX, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, bound)) do --!bound take
  local content = call('HGET', ENTRIES, entry) or ''
  bytes = bytes + #content
  if #reply > 2 and bytes > MOST_BYTES then break end --!bound take-bytes
  call('ZADD', OUTBOX, till, entry) --!write take
  reply[#reply + 1], reply[#reply + 2] = entry, content
end
reply[1] = math.min(cap, math.max(0, math.ceil(owed_at() - NOW)))
return reply
