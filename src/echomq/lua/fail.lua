-- verb: fail
-- purpose: Spend retry budget: the next attempt at the delay the client computed, or the morgue.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, once, row, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, bury, cancel, again, fence
-- flows: outbox, kin
-- keys: meta hash; waiting zset; active zset; schedule zset; dead zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash; pending zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; delay_ms ms; max_attempts count; error json
-- reply: a verdict an item
-- verdicts: retry; dead; cancelled
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQVERSION
-- events: failed; dead; cancelled; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> schedule; active -> dead; active -> done; active -> nothing; done -> nothing; dead -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 6, read)
local verdicts = each(3, 6, function(at)
  local id, token, problem = ARGV[at], ARGV[at + 1], ARGV[at + 5]
  local delay = whole(ARGV[at + 3], 0, LONGEST)
  if not delay then return 'EMQKIND delay_ms ' .. ARGV[at + 3] end --!guard delay
  local budget = whole(ARGV[at + 4], 0, 1000000000)
  if not budget then return 'EMQKIND max_attempts ' .. ARGV[at + 4] end --!guard budget
  local row, refusal = fenced(id, token, ARGV[at + 2])
  if not row then return refusal end --!guard fence
  local failures = row.failures + 1
  row.fault = string.match(problem, '^{"type":"([^"]*)"') or '' -- as the record of an error begins
  local reason
  if failures >= budget then --!bound max-attempts
    reason = 'failed ' .. failures .. ' of ' .. budget .. ' times'
  elseif row.deadline and NOW + delay >= row.deadline then --!guard deadline
    reason = 'deadline: the next attempt would come after it'
  end
  if reason and not row.cancel then --!guard fail-asked
    bury(id, row, reason, 'failures', failures, 'error', problem)
    return 'dead'
  end
  local verdict = again(id, row, 'schedule', NOW + delay, 'failures', failures, 'error', problem)
  if verdict then return verdict end
  release_holder(id, 'unfit_since')
  tally('failed')
  emit('failed', id, 'token', token, 'failures', failures, 'due', NOW + delay, 'error', row.fault)
  return 'retry ' .. (NOW + delay)
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
