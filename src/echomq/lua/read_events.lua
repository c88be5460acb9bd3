-- verb: read_events
-- purpose: A page of what happened after a position in the stream of events, and where the stream begins and ends.
-- section: Protocol, section 2
-- flags: no-writes
-- include: number
-- keys: meta hash; events stream
-- argv: client tag; number count; after text; bound count; job tag; kinds words
-- reply: where it has read to; how many were looked at; how many were ever added; how many are kept; the first and the last one's id; when the queue was first configured, or nothing; then those that fit, each its id and fields
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n) and O(bound)
-- bound: bound, at most 1000
-- moves:
local after, bound, job = ARGV[3], whole(ARGV[4], 1, 1000), ARGV[5] --!bound read-events
if not bound or after ~= '$' and not string.find(after, '^%d+%-%d+$') then --!guard page
  return redis.error_reply('EMQKIND read_events: its position or bound is out of range')
end
local EVENTS = P .. 'events'
local born = call('HMGET', META, 'born')[1] or ''
if call('EXISTS', EVENTS) == 0 then return { after == '$' and '0-0' or after, 0, 0, 0, '0-0', '0-0', born } end --!guard no-events
local kinds
for kind in string.gmatch(ARGV[6], '%S+') do
  kinds = kinds or {}
  kinds[kind] = true
end
local stream, flat = {}, call('XINFO', 'STREAM', EVENTS)
for i = 1, #flat, 2 do
  stream[flat[i]] = flat[i + 1]
end
local last = stream['last-generated-id']
local entries = after == '$' and {} or call('XRANGE', EVENTS, '(' .. after, '+', 'COUNT', bound)
local reply = { after == '$' and last or after, #entries, stream['entries-added'], stream.length, stream['recorded-first-entry-id'], last, born }
for _, entry in ipairs(entries) do
  -- An event says first what it is and of which job.
  local fields = entry[2]
  if (job == '' or fields[4] == job) and (not kinds or kinds[fields[2]]) then reply[#reply + 1] = entry end --!guard events-of
  reply[1] = entry[1]
end
return reply
