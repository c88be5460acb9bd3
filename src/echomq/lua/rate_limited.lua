-- verb: rate_limited
-- purpose: Give jobs back, spending nothing, and let nothing of their lane, or of the queue, start before a moment.
-- section: Protocol, sections 5 and 6
-- flags: allow-oom
-- include: now, number, once, row, begins, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, cancel, again, fence
-- flows: bury, outbox, kin
-- keys: meta hash; waiting zset; active zset; pending zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash; schedule zset; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; after_ms ms; scope text
-- reply: a verdict an item
-- verdicts: ok; cancelled
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQVERSION
-- events: rate_limited; cancelled; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> pending; active -> done; active -> nothing; done -> nothing; active -> dead
local kept, refused = recall()
if kept or refused then return kept or refused end

-- The latest moment counts, whoever named it.
local function close(limits, moment)
  limits = limits or read_limits('0 0 0 0 0 0 0 0')
  limits.till = math.max(limits.till, moment) --!write till
  return limits
end
local fenced = fence(ARGV, 3, 5, read)
local verdicts = each(3, 5, function(at)
  local id, token, scope = ARGV[at], ARGV[at + 1], ARGV[at + 4]
  local after = whole(ARGV[at + 3], 1, DAY)
  if not after then return 'EMQKIND after_ms ' .. ARGV[at + 3] end --!guard after
  if scope ~= 'lane' and scope ~= 'queue' then return 'EMQKIND scope ' .. scope end --!guard scope
  local row, refusal = fenced(id, token, ARGV[at + 2])
  if not row then return refusal end --!guard fence
  local moment = NOW + after
  if scope == 'lane' then begin_rota() end --!guard first-closing
  local verdict = again(id, row, 'pending', -row.priority)
  if scope == 'queue' then
    LIMITS = close(LIMITS, moment)
    call('HSET', META, 'limits', spell_limits(LIMITS)) --!write queue-till
  else
    local name = row.lane or ''
    local lane = read_lane(call('HGET', LANES, name))
    lane.limits = close(lane.limits, moment)
    -- Where the lane stands is settled at the end of the call: a field that is not written now would not be found then.
    lane.waits = call('EXISTS', P .. lane_set(name)) == 1
    write_lane(name, lane) --!write lane-till
  end
  if verdict then return verdict end
  release_holder(id)
  emit('rate_limited', id, 'token', token, 'scope', scope, 'until', string.format('%.0f', moment))
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
