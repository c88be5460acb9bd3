-- verb: configure
-- purpose: Set what the queue tells of: none, failures (the default) or all events.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: once
-- keys: meta hash; once:<client>:<verb> string
-- argv: client tag; number count; events text
-- reply: 1
-- verdicts:
-- refusals: EMQKIND; EMQVERSION; EMQSTALE
-- events:
-- cost: O(1)
-- bound: none needed
-- moves:
local kept, refused = recall()
if kept or refused then return kept or refused end

local level = ARGV[3]
if level ~= 'none' and level ~= 'failures' and level ~= 'all' then --!guard level
  return redis.error_reply('EMQKIND events ' .. level .. ' is not none, failures or all')
end
if not meta[1] then call('HSET', META, 'protocol', VERSION) end --!write meta
call('HSET', META, 'events', level) --!write level
remember(1)
return 1
