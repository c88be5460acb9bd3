-- verb: log
-- purpose: Append lines to jobs' logs, bounded by lines and bytes; the oldest lines go first.
-- section: Protocol, section 5
-- flags:
-- include: now, once, row, torn, items, fence
-- keys: meta hash; active zset; job:<id> hash; job:<id>:log list; once:<client>:<verb> string; counts hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; line text
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQVERSION
-- events:
-- cost: O(log n) an item
-- bound: 256 items, 100 lines and 64 KiB a log
-- moves: active -> active
local kept, refused = recall()
if kept or refused then return kept or refused end

local MOST_LINES, MOST_BYTES = 100, 65536
local fenced = fence(ARGV, 3, 4, read_ending)
local verdicts = each(3, 4, function(at)
  local id, line = ARGV[at], ARGV[at + 3]
  if #line > MOST_BYTES then return 'EMQKIND line of ' .. #line .. ' bytes, the limit is ' .. MOST_BYTES end --!guard line
  local row, refusal = fenced(id, ARGV[at + 1], ARGV[at + 2])
  if not row then return refusal end --!guard fence
  local key = row_key(id) .. ':log'
  local lines = call('RPUSH', key, line) --!write line
  local bytes = call('HINCRBY', row_key(id), 'log_bytes', #line) --!write bytes
  call('HINCRBY', row_key(id), 'log_lines', 1) --!write lines
  local cut = 0
  while lines > MOST_LINES or bytes - cut > MOST_BYTES do --!bound log
    cut = cut + #call('LPOP', key) --!write cut
    lines = lines - 1
  end
  if cut > 0 then call('HINCRBY', row_key(id), 'log_bytes', -cut) end --!write cut-bytes
  call('PUBLISH', row_key(id), 'log') --!write log-told
  return 'ok'
end)
flush_tally()
remember(verdicts)
return verdicts
