-- verb: enqueue
-- purpose: Admit jobs: check, reserve the dedup key, write the row, place it in pending or schedule.
-- section: Protocol, section 5
-- flags:
-- include: now, number, once, row, torn, emit, bell
-- keys: meta hash; pending zset; schedule zset; job:<id> hash; dedup:<key> string; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; priority integer; delay_ms ms; at_ms ms; dedup text; dedup_window_ms ms; fields count; then name and value of each field
-- reply: a verdict an item
-- verdicts: admitted; duplicate; collision
-- refusals: EMQKIND; EMQSTATE; EMQVERSION; EMQSTALE
-- events: enqueued
-- cost: O(log n) an item
-- bound: 256 items
-- moves: nothing -> pending; nothing -> schedule
local kept, refused = recall()
if kept or refused then return kept or refused end

local MOST_PRIORITY = 2047
local LONGEST = 3162240000000 -- a century in ms
local items, rows = {}, nil -- by item: where its arguments begin; its row's key, if there are several
local function alive(id)
  local state = call('HGET', row_key(id), 'state')
  return state and state ~= 'dead' and state ~= 'done'
end

-- Items that are admitted and not written yet: number, state, score. They are placed together, one command a set, and then
-- get their rows: a place without a row is dropped by whoever comes upon it, a row without a place would be lost. (A
-- list is dear to make: a call of one item, which is frequent, makes few.)
local verdicts, waiting = {}, nil
-- Should the server refuse an item a place or a row, its dedup key must not stay.
local function unmake(problem, at)
  if ARGV[at + 4] ~= '' then pcall(call, 'DEL', P .. 'dedup:' .. ARGV[at + 4]) end --!write unmake
  return torn(problem)
end
-- Answers the server's refusal, or nil.
local function enter(state)
  local words
  -- The last first: the server looks for a place in a small set from its head on, past all that come before.
  for i = #waiting, 1, -3 do
    if waiting[i - 1] == state then
      local score, id = waiting[i], ARGV[items[waiting[i - 2]]]
      if words then
        words[#words + 1] = score
        words[#words + 1] = id
      else
        words = { score, id }
      end
    end
  end
  if not words then return nil end
  local answer = redis.pcall('ZADD', SETS[state], unpack(words)) --!write enter
  if type(answer) == 'table' then return answer end --!guard enter-refused
  return nil
end
local function write_row(n, state)
  local at = items[n]
  call('HSET', rows and rows[n] or row_key(ARGV[at]), 'state', state, 'since', NOW, 'by', CLIENT, unpack(ARGV, at + 7, at + 6 + 2 * ARGV[at + 6])) --!write row
  if state == 'pending' then made_ready = made_ready + 1 end
end
local function write_waiting()
  if not waiting then return end
  local no_pending, no_schedule = enter('pending'), enter('schedule')
  for i = 1, #waiting, 3 do
    local n, state = waiting[i], waiting[i + 1]
    local fine, problem = false, no_schedule
    if state == 'pending' then problem = no_pending end
    if not problem then fine, problem = pcall(write_row, n, state) end
    verdicts[n] = fine and 'admitted' or unmake(problem, items[n])
    -- It is admitted, whatever becomes of its event.
    if fine and not pcall(emit, 'enqueued', ARGV[items[n]]) then tally('torn') end
  end
  waiting = nil
end

-- Whether none of the call's jobs is there, and none comes twice: then no item need ask. Almost every call is so.
local fresh = false
-- Answers the verdict, or nil for an item that waits to be written.
local begun
local function admit(n)
  local at = items[n]
  local id, dedup = ARGV[at], ARGV[at + 4]
  begun = nil
  if meta[3] then return 'EMQSTATE closing' end --!guard closing
  local priority = whole(ARGV[at + 1], -MOST_PRIORITY, MOST_PRIORITY)
  if not priority then return 'EMQKIND priority ' .. ARGV[at + 1] end --!guard priority
  local delay = whole(ARGV[at + 2], 0, LONGEST)
  if not delay then return 'EMQKIND delay_ms ' .. ARGV[at + 2] end --!guard delay
  local due = whole(ARGV[at + 3], 0, FAR)
  if not due then return 'EMQKIND at_ms ' .. ARGV[at + 3] end --!guard at
  local window = whole(ARGV[at + 5], 0, LONGEST)
  if not window then return 'EMQKIND dedup_window_ms ' .. ARGV[at + 5] end --!guard window
  -- What follows reads rows: those of the items before this one, too.
  if dedup ~= '' or not fresh then write_waiting() end --!guard write-first
  local by = not fresh and call('HGET', row_key(id), 'by')
  if by then --!guard exists
    -- Written by this client: the resend of a call whose memory is gone. By another: two clients minted the same id.
    return by == CLIENT and 'admitted' or 'collision'
  end
  if dedup ~= '' then
    local key = P .. 'dedup:' .. dedup
    local holder = call('GET', key)
    if holder and holder ~= id and (call('PTTL', key) > 0 or alive(holder)) then return 'duplicate ' .. holder end --!guard dedup
    if window > 0 then
      call('SET', key, id, 'PX', window) --!write dedup-window
    else
      call('SET', key, id) --!write dedup
    end
  end
  begun = at
  if not meta[1] then
    call('HSET', META, 'protocol', VERSION) --!write meta
    meta[1] = VERSION
  end
  if delay > 0 then due = NOW + delay end
  local state, score = 'pending', -priority
  if due > NOW then
    state, score = 'schedule', due
    watch_head(due)
  end
  if waiting then
    local last = #waiting
    waiting[last + 1], waiting[last + 2], waiting[last + 3] = n, state, score
  else
    waiting = { n, state, score }
  end
  return nil
end

-- A malformed call is refused whole, before its first item is admitted.
local at = 3
while at <= #ARGV do
  local fields = whole(ARGV[at + 6], 0, 64)
  if not fields or at + 6 + 2 * fields > #ARGV or #items == MOST_ITEMS then --!guard malformed
    return redis.error_reply('EMQKIND malformed call: item ' .. #items + 1)
  end
  items[#items + 1] = at
  at = at + 7 + 2 * fields
end
if #items > 1 then
  local seen = {}
  fresh, rows = true, {}
  for n, first in ipairs(items) do
    local key = row_key(ARGV[first])
    if seen[key] then fresh = false end --!guard twice
    seen[key] = true
    rows[n] = key
  end
  if call('EXISTS', unpack(rows)) > 0 then fresh = false end --!guard there
end
for n, first in ipairs(items) do
  local fine, verdict = pcall(admit, n)
  if not fine then
    local undo = torn
    if begun == first then undo = unmake end --!guard unmake
    verdict = undo(verdict, first)
  end
  verdicts[n] = verdict
end
write_waiting()
bell()
flush_tally()
remember(verdicts)
return verdicts
