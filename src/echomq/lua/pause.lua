-- verb: pause
-- purpose: Claims answer nothing until the queue is resumed; what runs goes on, leases are still recovered.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, emit
-- keys: meta hash; once:<client>:<verb> string; events stream
-- argv: client tag; number count
-- reply: 1 if this call paused it, 0 if it was paused already
-- verdicts:
-- refusals: EMQVERSION; EMQSTALE
-- events: paused
-- cost: O(1)
-- bound: none needed
-- moves:
local kept, refused = recall()
if kept or refused then return kept or refused end

if not meta[1] then call('HSET', META, 'protocol', VERSION) end --!write meta
local changed = call('HSETNX', META, 'paused', NOW) --!write paused
if changed == 1 then pcall(emit, 'paused', '') end -- a stream that is torn must not keep anybody from pausing
remember(changed)
return changed
