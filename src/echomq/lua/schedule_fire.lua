-- verb: schedule_fire
-- purpose: Make the jobs of due slots and go on to the next one, if the schedule still stands where the caller saw it.
-- section: Protocol, section 5
-- flags:
-- include: now, number, once, moment, emit, row, begins, limits, rota, bell, lane, slots
-- keys: meta hash; pending zset; schedule zset; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; schedules zset; schedule:<name> hash; job:<id> hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count; name text; digest tag; slot ms; next ms; id tag; slot ms; due ms
-- reply: a verdict for each triple of id, slot and due
-- verdicts:
-- refusals: EMQKIND; EMQGONE; EMQSTALE; EMQFULL; EMQSTATE; EMQVERSION
-- events: enqueued; skipped
-- cost: O(log n) a slot
-- bound: 100 slots
-- moves: nothing -> pending; nothing -> schedule
local kept, refused = recall()
if kept or refused then return kept or refused end

local name, slot, next_slot = ARGV[3], whole(ARGV[5], 0, FAR), whole(ARGV[6], 0, FAR)
local n = (#ARGV - 6) / 3
if not slot or not next_slot or n % 1 ~= 0 or n > 100 then return redis.error_reply('EMQKIND schedule_fire: its slots or items are malformed') end --!guard argv
for at = 7, #ARGV, 3 do
  if not (whole(ARGV[at + 1], 0, FAR) and whole(ARGV[at + 2], 0, FAR)) then return redis.error_reply('EMQKIND slot ' .. ARGV[at + 1]) end --!guard items
end
if meta[3] then return redis.error_reply('EMQSTATE closing') end --!guard closing
local key = schedule_key(name)
local stands, at_once = {}, slot == 0
local flat = call('HGETALL', key)
if #flat == 0 then return redis.error_reply('EMQGONE schedule ' .. name) end --!guard gone
for i = 1, #flat, 2 do
  stands[flat[i]] = flat[i + 1]
end
-- The compare of the compare-and-set: of any number who saw the slot come, one goes on.
if not at_once then
  if stands.slot ~= ARGV[5] or stands.digest ~= ARGV[4] or stands.paused then --!guard slot-stands
    return redis.error_reply('EMQSTALE slot ' .. (stands.paused and 'paused' or stands.slot or 'none'))
  end
  if next_slot ~= 0 and next_slot <= math.max(slot, NOW) then return redis.error_reply('EMQSTALE next') end --!guard next-ahead
end

-- Which of its jobs are not over, and whether one of them still waits.
local open, waits = {}, false
if stands.overlap ~= 'allow' then
  for id in string.gmatch(stands.open or '', '%S+') do
    local state = call('HGET', row_key(id), 'state')
    if state == 'pending' or state == 'schedule' or state == 'active' then --!guard open
      open[#open + 1] = id
      waits = waits or state ~= 'active' --!write waits
    end
  end
end
local verdicts, admitted = {}, 0
for i = 1, n do
  local id = ARGV[4 + 3 * i]
  local over = at_once or stands.overlap == 'allow' or #open == 0 or stands.overlap == 'queue' and #open == 1 and not waits --!guard overlap
  if call('EXISTS', row_key(id)) == 1 then return redis.error_reply('EMQSTATE collision ' .. id) end --!guard collision
  verdicts[i] = over and 'admitted' or 'skipped'
  if over then
    admitted = admitted + 1
    open[#open + 1], waits = id, true
  end
end
if meta[8] and admitted > meta[8] - call('ZCARD', P .. 'pending') - call('ZCARD', P .. 'schedule') - (call('HGET', META, 'laned') or 0) then --!bound fire-size
  return redis.error_reply('EMQFULL ' .. meta[8])
end

local lane, priority = stands.lane or '', tonumber(stands.priority) or 0
local row = {}
for field, value in pairs(stands) do
  if string.sub(field, 1, 2) == 'f:' then
    row[#row + 1], row[#row + 2] = string.sub(field, 3), value
  end
end
if lane ~= '' then row[#row + 1], row[#row + 2] = 'lane', lane end
local function make(id, slot_text, due)
  local set, score = lane_set(lane), -priority
  if due > NOW then
    set, score = 'schedule', due
    watch(P .. 'schedule', due)
  end
  if lane ~= '' then begin_rota() end
  local come = call('ZADD', P .. set, score, id) --!write fire-enter
  if set ~= 'schedule' and lane ~= '' then laned = laned + come end --!write fire-laned
  local words = { 'state', set == 'schedule' and set or 'pending', 'since', NOW, 'by', CLIENT, 'schedule', name, 'slot', slot_text }
  call('HSET', row_key(id), unpack(words)) --!write fire-row
  if #row > 0 then call('HSET', row_key(id), unpack(row)) end --!write fire-fields
  -- From when it may run: its jitter is no part of its time.
  if (stands.ends or '') ~= '' then call('HSET', row_key(id), unpack(ends(stands.ends, math.max(NOW, due)))) end --!write fire-ends
  if set ~= 'schedule' then
    if ROTA then
      touch(lane, 1)
    else
      made_ready = made_ready + 1
    end
  end
  emit('enqueued', id, 'schedule', name, 'slot', slot_text)
end

-- The slot first: should the server refuse what follows, the slot is put back to the first that has no job. The other way
-- round, a slot that could not be moved would make jobs for ever.
if not at_once then
  local fine, problem = pcall(stand, name, next_slot)
  if not fine then
    pcall(call, 'ZADD', SCHEDULES, slot, name) --!write fire-stays
    error(problem)
  end
end
local fired, skipped, last = 0, 0, {}
-- What the schedule knows of the jobs that it has made.
local function note()
  local known = #open
  local kept_open = table.concat(open, ' ', math.max(1, known - 7), known) --!bound open
  local words = { 'open', stands.overlap == 'allow' and '' or kept_open }
  if last[1] then words[3], words[4], words[5], words[6] = 'last_id', last[1], 'last_slot', last[2] end
  call('HSET', key, unpack(words)) --!write fired
  if fired > 0 and not at_once then call('HINCRBY', key, 'count', fired) end --!write fire-count
  if skipped > 0 then call('HINCRBY', key, 'skipped', skipped) end --!write fire-skipped
end
for i = 1, n do
  local id, of = ARGV[4 + 3 * i], ARGV[5 + 3 * i]
  if verdicts[i] == 'admitted' then
    local fine, problem = pcall(make, id, of, tonumber(ARGV[6 + 3 * i]))
    if not fine then --!guard fire-refused
      pcall(call, 'ZREM', P .. 'schedule', id)
      local out, gone = pcall(call, 'ZREM', P .. lane_set(lane), id)
      if out and lane ~= '' then laned = laned - gone end --!write fire-unlaned
      pcall(call, 'DEL', row_key(id)) --!write fire-unmake
      if not at_once then stand(name, tonumber(of)) end --!write fire-back
      pcall(note)
      bell()
      flush_tally()
      error(problem)
    end
    fired, last = fired + 1, { id, of }
  else
    skipped = skipped + 1
    tally('skipped')
    emit('skipped', '', 'schedule', name, 'slot', of)
  end
end
note()
-- Whoever keeps the timer learns of the next slot by a claim.
made_ready = math.max(1, made_ready) --!write fire-ring
bell()
flush_tally()
remember(verdicts)
return verdicts
