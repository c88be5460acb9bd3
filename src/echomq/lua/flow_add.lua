-- verb: flow_add
-- purpose: Add parents and children, all or nothing; larger flows in rounds, of which nothing runs before the last.
-- section: Protocol, section 7
-- flags:
-- include: now, number, once, row, flows, begins, moment, limits, rota, read, place, emit, bell, erase, shelf, bury, lane
-- flows: outbox, kin, dedup, nodes
-- keys: meta hash; pending zset; schedule zset; waiting zset; dead zset; done zset; job:<id> hash; job:<id>:log list; job:<id>:children hash; job:<id>:results hash; job:<id>:held list; outbox zset; outbox:entries hash; delivered:<entry> string; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count; hold tag; last count; entry text; nodes words
-- reply: a verdict a node
-- verdicts: admitted; duplicate; skipped
-- refusals: EMQKIND; EMQSTATE; EMQFULL; EMQGONE; EMQVERSION; EMQSTALE
-- events: enqueued
-- cost: O(log n) a node
-- bound: 256 nodes
-- moves: nothing -> pending; nothing -> schedule; nothing -> waiting
local kept, refused = recall()
if kept or refused then return kept or refused end

local hold, last, entry = ARGV[3], ARGV[4] == '1', ARGV[5]
local words, at = ARGV, 6
if entry ~= '' then
  -- What another queue's outbox sends comes once.
  if call('EXISTS', P .. 'delivered:' .. entry) == 1 then return { 'admitted' } end --!guard delivered
  local fine, unpacked = pcall(words_of, ARGV[6] or '')
  if not fine then return redis.error_reply('EMQKIND flow_add: its nodes are malformed') end
  words, at = unpacked, 1
end
local nodes, wrong = read_nodes(words, at)
if not nodes then return redis.error_reply(wrong) end
if #nodes == 0 then return redis.error_reply('EMQKIND flow_add: it has no nodes') end --!guard no-nodes
if meta[3] then return redis.error_reply('EMQSTATE closing') end --!guard closing
local size = entry == '' and meta[8] and call('ZCARD', P .. 'pending') + call('ZCARD', P .. 'schedule') + (call('HGET', META, 'laned') or 0)
if size and size >= tonumber(meta[8]) then --!bound flow-size
  return redis.error_reply('EMQFULL ' .. meta[8])
end
if hold ~= '' and nodes[1].id ~= hold then
  -- A later round: the flow is still held, or somebody has given it up.
  for _, node in ipairs(nodes) do
    local parent = not tonumber(node.above) and string.match(node.above, '^%S+')
    if parent then
      if call('HGET', row_key(parent), 'hold') ~= hold then return redis.error_reply('EMQGONE ' .. parent) end --!guard round-held
      if call('HEXISTS', row_key(parent) .. ':children', node.name) == 1 then return redis.error_reply('EMQKIND name ' .. node.name) end --!guard round-name
    end
  end
  if string.sub(call('HGET', ENTRIES, 'hold:' .. hold) or '', -4) ~= 'wait' then return redis.error_reply('EMQGONE ' .. hold) end --!guard round-open
end
local verdicts, refusal = admit_nodes(words, nodes, { hold = hold ~= '' and hold or nil, last = last, strict = entry == '' })
if not verdicts then return redis.error_reply(refusal) end
if entry ~= '' then call('SET', P .. 'delivered:' .. entry, 1, 'EX', 86400) end --!write delivered
bell()
flush_tally()
remember(verdicts)
return verdicts
