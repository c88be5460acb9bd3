-- verb: read_flow
-- purpose: A page of a job's children, and how they ended.
-- section: Protocol, section 7
-- flags: no-writes
-- include: now, number, row
-- keys: meta hash; job:<id>:children hash; job:<id>:results hash
-- argv: client tag; number count; id tag; cursor text; count count; whole count
-- reply: cursor; children of all pages; those that have ended; then of each child its name, its link and its outcome or ''
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(count)
-- bound: count, at most 1000; 512 of those that the server keeps compactly
-- moves:
local key, count = row_key(ARGV[3]), whole(ARGV[5], 1, 1000)
if not count or not string.match(ARGV[4], '^%d+$') then return redis.error_reply('EMQKIND read_flow: its cursor or count is out of range') end --!guard argv
local children, results = key .. ':children', key .. ':results'
local page = call('HSCAN', children, ARGV[4], 'COUNT', count) --!bound read-flow
local reply = { page[1], call('HLEN', children), call('HLEN', results) }
for i = 1, #page[2], 2 do
  local text = call('HGET', results, page[2][i]) or ''
  if ARGV[6] ~= '1' then text = string.match(text, '^[^\n]*') end
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = page[2][i], page[2][i + 1], text
end
return reply
