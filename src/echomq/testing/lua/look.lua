-- verb: look
-- purpose: For tests only: what a queue has for workers to do now, and when it next has something.
-- section: How-to, test your tasks
-- flags: no-writes
-- include: now, number, row, limits, rota
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; schedules zset; job:<id> hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; outbox zset
-- argv: client tag; number count; min_size count; linger_ms ms; by_lane count
-- reply: how many jobs can be claimed now; are claimed; are or were due; slots that have come; outbox entries; jobs that wait for a later moment; for their children; now ms; the next such moment ms, 0: none; the next slot ms, 0: none
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n), and O(1) a lane
-- bound: the lanes
-- moves:
local min_size, linger = whole(ARGV[3], 1, 10000), whole(ARGV[4], 0, 86400000)
if not (min_size and linger) then return redis.error_reply('EMQKIND look: min_size or linger_ms is out of range') end
local by_lane = ARGV[5] == '1'
local ready = call('ZCARD', P .. 'pending') + (tonumber(call('HGET', META, 'laned')) or 0)
local held, soonest = 0, math.huge
local function first_after_now(set)
  local found = call('ZRANGE', P .. set, '(' .. string.format('%.0f', NOW), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  return tonumber(found[2]) or math.huge
end
local function text_of(moment)
  return moment < math.huge and string.format('%.0f', moment) or '0'
end
if PAUSED then
  ready, held = 0, ready
else
  local opens = LIMITS and shut(LIMITS, ACTIVE)
  if opens and opens > NOW then
    ready, held, soonest = 0, ready, opens
  elseif ROTA then
    for _, name in ipairs(call('ZRANGE', P .. 'closed', '(' .. string.format('%.0f', NOW), '+inf', 'BYSCORE')) do
      local count = call('ZCARD', P .. lane_set(name))
      ready, held = ready - count, held + count
    end
    soonest = math.min(soonest, first_after_now('closed'))
  end
  -- As a claim has it (`ripens`): too few for a batch, and the first of them has not waited for long enough.
  if ready > 0 and min_size > 1 and not (by_lane and ROTA) then
    local count, oldest = 0, NOW
    for _, name in ipairs(ROTA and call('LRANGE', RING, 0, -1) or { '' }) do
      local key = P .. lane_set(name)
      local all = call('ZCARD', key)
      count = count + (ROTA and startable(name, read_lane(call('HGET', LANES, name)), all) or all)
      local head = call('ZRANGE', key, 0, 0)[1]
      oldest = math.min(oldest, head and tonumber(call('HGET', row_key(head), 'since')) or NOW)
    end
    if count < min_size and oldest + linger > NOW then
      ready, held, soonest = 0, held + ready, math.min(soonest, oldest + linger)
    end
  end
end
local now = string.format('%.0f', NOW)
local due = call('ZCOUNT', P .. 'schedule', '-inf', now)
soonest = math.min(soonest, first_after_now('schedule'))
return {
  ready, call('ZCARD', ACTIVE), due, call('ZCOUNT', P .. 'schedules', '-inf', now), call('ZCARD', P .. 'outbox'),
  held + call('ZCARD', P .. 'schedule') - due, call('ZCARD', P .. 'waiting'), now,
  text_of(soonest), text_of(first_after_now('schedules')),
}
