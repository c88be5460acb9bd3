-- verb: resume
-- purpose: Serve the queue again; lifts `closing`, and what a handler's word has closed, too.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, emit, bell
-- keys: meta hash; pending zset; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream
-- argv: client tag; number count
-- reply: 1 if this call resumed it, 0 if it was not paused
-- verdicts:
-- refusals: EMQVERSION; EMQSTALE
-- events: resumed
-- cost: O(1)
-- bound: 64 tokens
-- moves:
local kept, refused = recall()
if kept or refused then return kept or refused end

local changed = call('HDEL', META, 'paused', 'closing') > 0 and 1 or 0 --!write resumed
if LIMITS and LIMITS.till > NOW then --!guard told-to-wait
  LIMITS.till = 0
  local text = spell_limits(LIMITS)
  if text == '' then
    call('HDEL', META, 'limits') --!write no-limits
  else
    call('HSET', META, 'limits', text) --!write limits-left
  end
  changed = 1
end
if changed == 1 then pcall(emit, 'resumed', '') end -- as in `pause`
PAUSED = nil
made_ready = call('ZCARD', P .. 'pending') + (tonumber(call('HGET', META, 'laned')) or 0)
bell()
remember(changed)
return changed
