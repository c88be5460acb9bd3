-- verb: schedule_put
-- purpose: Define a recurring schedule; the same definition again changes nothing.
-- section: Protocol, section 5
-- flags:
-- include: now, number, moment, row, limits, rota, bell, lane, slots
-- keys: meta hash; schedules zset; schedule:<name> hash; wake list
-- argv: client tag; number count; name text; digest tag; spec json; origin text; overlap text; slot ms; priority integer; ends moments; lane text; fields count; field text; value bytes
-- reply: created, changed, same or stale; now ms
-- verdicts:
-- refusals: EMQKIND; EMQSTATE; EMQVERSION
-- events:
-- cost: O(log n)
-- bound: 64 fields
-- moves:
local name, digest, spec, origin, overlap, priority, lifetime, lane = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[9], ARGV[10], ARGV[11]
local slot, fields = whole(ARGV[8], 0, FAR), whole(ARGV[12], 0, 64)
if not slot or not fields or #ARGV ~= 12 + 2 * fields or not string.find(name, '^[%w._:-]+$') or #name > 128 then --!guard argv
  return redis.error_reply('EMQKIND schedule_put: its name, slot or fields are malformed')
end
if overlap ~= 'allow' and overlap ~= 'skip' and overlap ~= 'queue' then return redis.error_reply('EMQKIND overlap ' .. overlap) end --!guard overlap
if not whole(priority, -2047, 2047) then return redis.error_reply('EMQKIND priority ' .. priority) end --!guard priority
if lifetime ~= '' and not (ends(lifetime) or {})[1] then return redis.error_reply('EMQKIND ends ' .. lifetime) end --!guard ends
if lane ~= '' and not lane_fits(lane) then return redis.error_reply('EMQKIND lane ' .. lane) end --!guard lane
if meta[3] then return redis.error_reply('EMQSTATE closing') end --!guard closing

local key = schedule_key(name)
local old = call('HMGET', key, 'digest', 'slot', 'paused', 'origin')
-- Whoever defines it last owns it, but for a person, who takes it from no program.
if origin == '' and old[4] then origin = old[4] end --!guard by-hand
-- One that was torn from its slot is put there again.
if old[1] == digest and call('ZSCORE', SCHEDULES, name) then --!guard same
  if origin ~= old[4] then call('HSET', key, 'origin', origin) end --!write owner
  return { 'same', NOW }
end
if slot ~= 0 and slot <= NOW then return { 'stale', NOW } end --!guard slot-ahead
local stood = tonumber(old[2]) or 0
-- A slot that has come and is not fired yet is fired by the new definition: no deploy swallows one.
if stood > 0 and stood <= NOW and not old[3] then slot = stood end --!guard slot-kept
if not meta[1] then call('HSET', META, 'protocol', VERSION) end --!write meta
call('HSET', META, 'schedules', 1) --!write schedules
local words = { 'spec', spec, 'origin', origin, 'overlap', overlap, 'priority', priority, 'ends', lifetime, 'lane', lane }
local stays = { digest = true, slot = true, count = true, skipped = true, paused = true, last_id = true, last_slot = true, open = true }
for i = 13, #ARGV, 2 do
  words[#words + 1], words[#words + 2] = 'f:' .. ARGV[i], ARGV[i + 1]
end
for i = 1, #words, 2 do
  stays[words[i]] = true
end
call('HSET', key, unpack(words)) --!write definition
for _, field in ipairs(call('HKEYS', key)) do
  if not stays[field] then call('HDEL', key, field) end --!write definition-forget
end
stand(name, slot, old[3])
-- The last of it: a definition that the server refused in its middle is none, and is made again by whoever says it again.
call('HSET', key, 'digest', digest) --!write digest
bell()
return { old[1] and 'changed' or 'created', NOW }
