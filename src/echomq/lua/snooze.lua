-- verb: snooze
-- purpose: Put jobs off by a delay, spending nothing.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, once, row, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, cancel, again, fence
-- flows: bury, outbox, kin
-- keys: meta hash; waiting zset; active zset; schedule zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash; pending zset; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; delay_ms ms; unfit count
-- reply: a verdict an item
-- verdicts: ok; cancelled
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQVERSION
-- events: snoozed; cancelled; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> schedule; active -> done; active -> nothing; done -> nothing; active -> dead
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 5, read)
local verdicts = each(3, 5, function(at)
  local id, token = ARGV[at], ARGV[at + 1]
  local delay = whole(ARGV[at + 3], 0, LONGEST)
  if not delay then return 'EMQKIND delay_ms ' .. ARGV[at + 3] end --!guard delay
  local row, refusal = fenced(id, token, ARGV[at + 2])
  if not row then return refusal end --!guard fence
  local verdict = again(id, row, 'schedule', NOW + delay)
  if verdict then return verdict end
  -- The worker did not know the job's task, or its arguments do not fit: since when, for the window of a rolling deploy.
  -- A handler that ran has shown that it fits.
  if ARGV[at + 4] == '1' then
    call('HSETNX', row_key(id), 'unfit_since', NOW) --!write unfit
    release_holder(id)
  else
    release_holder(id, 'unfit_since')
  end
  emit('snoozed', id, 'token', token, 'due', NOW + delay)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
