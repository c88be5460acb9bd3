-- verb: read_settings
-- purpose: What the queue was told: events, capacity, pause, limits.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, row, limits
-- keys: meta hash; active zset
-- argv: client tag; number count
-- reply: now ms; events; max_size or 0; ms the queue was paused at or 0; limits as text, empty when there are none; reasons why nothing may start; ms until that is looked at again or -1
-- verdicts:
-- refusals: EMQVERSION
-- events:
-- cost: O(1)
-- bound: none needed
-- moves:
local reasons = {}
local moment = LIMITS and shut(LIMITS, ACTIVE, reasons)
local wait = moment and math.max(0, moment - NOW) or -1
local kept = call('HMGET', META, 'dead_max', 'dead_age', 'done_max', 'events_max')
return {
  NOW, meta[4] or 'failures', meta[8] or '0', meta[2] or '0', meta[7] or '', reasons, wait,
  kept[1] or '', kept[2] or '', kept[3] or '', meta[11] or '', kept[4] or '',
}
