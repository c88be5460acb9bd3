-- purpose: the names every script uses, and the version fence of the queue.
-- defines: P, META, CLIENT, NUMBER, call, meta, PAUSED, ROTA, LIMITED, MAY_BEGIN, FLOWS, MAY_FLOW, ended, tally, last_of_all, flush_tally
local call = redis.call
local META = KEYS[1]
local P = string.sub(META, 1, -5)
local CLIENT, NUMBER = ARGV[1], tonumber(ARGV[2])
if not NUMBER or NUMBER < 0 or NUMBER % 1 ~= 0 then return redis.error_reply('EMQKIND malformed call: its number') end --!guard number
local meta = call('HMGET', META, 'protocol', 'paused', 'closing', 'events', 'lease_max_ms', 'rota', 'limits', 'max_size', 'schedules', 'flows', 'on_dead')
if meta[1] and string.match(meta[1], '^%d+') ~= MAJOR then return redis.error_reply('EMQVERSION ' .. meta[1]) end --!guard version
local PAUSED = meta[2] or meta[3] -- what is being closed starts nothing either
-- A function costs a script that makes it, the more so the more it refers to. So those for lanes and limits are made only
-- in a queue that has some, or by a verb that may bring the first (it says so before it includes them).
local ROTA, LIMITED, MAY_BEGIN = meta[6], meta[7], false -- luacheck: ignore 311
-- The same for flows.
local FLOWS, MAY_FLOW = meta[10], false -- luacheck: ignore 311
-- What an ending tells those above and below it; nil where there are no flows.
local ended -- luacheck: ignore 221

-- Counters are gathered during the call and written once at its end.
local tallied = {}
local function tally(name)
  tallied[name] = (tallied[name] or 0) + 1
end
-- What is done last, before that; nil when nothing is.
local last_of_all -- luacheck: ignore 221
local function flush_tally()
  if last_of_all then last_of_all() end
  for name, n in pairs(tallied) do
    call('HINCRBY', P .. 'counts', name, n) --!write count
  end
end
