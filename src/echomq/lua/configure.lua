-- verb: configure
-- purpose: Change the queue's settings: events kept, jobs running at once, starts in a time, jobs waiting at once, jobs kept.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, once, row, begins, limits, rota, bell, setting
-- keys: meta hash; pending zset; active zset; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list
-- argv: client tag; number count; only_unset count; name text; value text
-- reply: 1 if anything changed, else 0
-- verdicts:
-- refusals: EMQKIND; EMQSTATE; EMQVERSION; EMQSTALE
-- events:
-- cost: O(1)
-- bound: 64 tokens
-- moves:
local kept, refused = recall()
if kept or refused then return kept or refused end

if #ARGV % 2 == 0 then return redis.error_reply('EMQKIND configure: its settings are malformed') end --!guard argv
if meta[3] then return redis.error_reply('EMQSTATE closing') end --!guard closing
local limits = LIMITS or read_limits('0 0 0 0 0 0 0 0')
local before = told(limits)
local fields, known = {}, {}
function known.events(value)
  fields.events = value
  return value == '' or value == 'none' or value == 'failures' or value == 'all' --!guard level
end
function known.max_size(value)
  fields.max_size = value
  return value == '' or whole(value, 1, 1000000000000) ~= nil --!bound max-size
end
for name, most in pairs({ dead_max = 1000000000, done_max = 1000000000, dead_age = LONGEST }) do
  known[name] = function(value)
    fields[name] = value
    return value == '' or whole(value, 1, most) ~= nil --!bound shelves
  end
end
function known.events_max(value)
  fields.events_max = value
  return value == '' or whole(value, 1, 1000000000) ~= nil --!bound events-kept
end
function known.on_dead(value)
  fields.on_dead = value
  return #value <= 128 and not string.find(value, '[^%w._:-]') --!guard on-dead
end
function known.limit(value)
  return set_limit(limits, value)
end
function known.rate(value)
  return set_rate(limits, value)
end
local kept_of = call('HMGET', META, 'dead_max', 'dead_age', 'done_max', 'events_max', 'born')
local is_set = {
  dead_max = kept_of[1], dead_age = kept_of[2], done_max = kept_of[3], events_max = kept_of[4],
  on_dead = meta[11], events = meta[4], max_size = meta[8], limit = limits.limit > 0, rate = limits.count > 0,
}
for i = 4, #ARGV, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if not known[name] then return redis.error_reply('EMQKIND ' .. name .. ' is no setting') end --!guard known
  if not (ARGV[3] == '1' and is_set[name]) and not known[name](value) then --!guard only-unset
    return redis.error_reply('EMQKIND ' .. name .. ' ' .. value)
  end
end
if told(limits) ~= before then fields.limits = spell_limits(limits) end --!guard limits-changed
local changed = 0
for name, value in pairs(fields) do
  if value ~= (call('HGET', META, name) or '') then --!guard changed
    changed = 1
    if value == '' then
      call('HDEL', META, name) --!write clear
    else
      call('HSET', META, name, value) --!write set
    end
  end
end
if changed == 1 then
  if not meta[1] then call('HSET', META, 'protocol', VERSION) end --!write meta
  -- Whoever follows the events knows by it whether the queue, and so the stream, is still the one that it was.
  if not kept_of[5] then call('HSET', META, 'born', NOW) end --!write born
  -- A limit that was raised, or is gone, lets what waited start.
  if fields.limits then LIMITS = limits end
  made_ready = call('ZCARD', P .. 'pending') + (tonumber(call('HGET', META, 'laned')) or 0) --!write configure-ring
  bell()
end
remember(changed)
return changed
