-- verb: flow_walk
-- purpose: A step of a walk over a parent's children: stop them, bring them back, ask after them; or let a held flow go.
-- section: Protocol, section 7
-- flags: allow-oom
-- include: now, number, row, flows, limits, rota, read, place, emit, bell, erase, shelf, ending, bury, cancel, ask, dedup, redrive, remove
-- flows: outbox, kin, above
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; dead zset; done zset; job:<id> hash; job:<id>:log list; job:<id>:children hash; job:<id>:results hash; job:<id>:held list; outbox zset; outbox:entries hash; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; wake list; events stream; counts hash
-- argv: client tag; number count; entry text; bound count
-- reply: 1 if there is more to do; children ended; asked; sent word; redriven; lost; released
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events: ready; dead; cancelled; cancel_requested; redriven; removed; trimmed; lost; dropped; torn
-- cost: O(log n) a child
-- bound: bound, at most 1000; 512 of those that the server keeps compactly
-- moves: pending -> done; pending -> nothing; pending -> dead; schedule -> done; schedule -> nothing; schedule -> dead; waiting -> pending; waiting -> schedule; waiting -> done; waiting -> nothing; waiting -> dead; dead -> pending; dead -> waiting; done -> nothing
local entry, bound = ARGV[3], whole(ARGV[4], 1, 1000)
if not bound then return redis.error_reply('EMQKIND bound ' .. ARGV[4]) end --!guard argv
local content = FLOWS and call('HGET', ENTRIES, entry)
if not content then return { 0, 0, 0, 0, 0, 0, 0 } end --!guard no-entry
local words = words_of(content)
local kind, id, cursor, mode = words[1], words[3], words[4], words[5]
local did = { cancelled = 0, asked = 0, sent = 0, redriven = 0, lost = 0, released = 0 }
local key = row_key(id)
-- Goes on from where the walk stands, over a hash of the parent's; answers whether it has come to the end.
local function scan(hash, visit)
  local page = call('HSCAN', key .. ':' .. hash, cursor, 'COUNT', bound) --!bound walk
  for i = 1, #page[2], 2 do
    local child, policy, queue = string.match(call('HGET', key .. ':children', page[2][i]) or '', LINK.child)
    if child then visit(page[2][i], page[2][i + 1], child, policy, queue) end
  end
  cursor = page[1]
  return cursor == '0'
end
local function gone_on()
  call('HSET', ENTRIES, entry, pack(kind, '', id, cursor, mode or '')) --!write walk-on
end
local function lose(name, child)
  if receive(id, name, child, outcome('lost', '0', 'nobody knows it', '')) ~= 'ok' then return end
  did.lost = did.lost + 1
  tally('lost')
  emit('lost', child, 'parent', id)
end

local walks = {}
-- The parent is over: its open children are told to stop.
function walks.sweep()
  local reason = 'parent ' .. mode .. ': ' .. id
  local over = scan('children', function(name, _, child, _, queue)
    if call('HEXISTS', key .. ':results', name) == 1 then return end --!guard swept-open
    local add = queue ~= '' and mode ~= 'dead' and tonumber(call('ZSCORE', OUTBOX, 'add:' .. child))
    if add and (add % 1 == 0 or add == math.huge) then --!guard swept-unsent
      strike('add:' .. child)
      receive(id, name, child, outcome('cancelled', '0', reason, ''))
      did.cancelled = did.cancelled + 1
    elseif queue ~= '' then
      owe(NOW, 'cancel:' .. child, 'cancel', queue, child, id, mode, reason) --!write swept-sent
      did.sent = did.sent + 1
    else
      local row = read(child)
      local verdict = row.state and names_parent(row, id) and stop_child(child, row, mode, reason)
      if verdict == 'cancelled' then
        did.cancelled = did.cancelled + 1
      elseif verdict then
        did.asked = did.asked + 1
      end
    end
  end)
  if over and call('EXISTS', key) == 0 then call('UNLINK', key .. ':children', key .. ':results') end --!write swept-erase
  return over
end
-- A dead parent begins a new life: those of its children that failed, and would fail it again, do so before.
function walks.revive()
  if call('HGET', key, 'hold') ~= 'revive' then return true end --!guard revive-held
  local over = scan('results', function(name, text, child, policy, queue)
    local how, token, reason = string.match(text, '^(%S+) %S+ (%S+) ([^\n]*)')
    if how == 'completed' or how == 'detached' then return end --!guard revive-failed
    if policy ~= 'f' and string.sub(reason, 1, 11) ~= 'parent dead' then return end --!guard revive-policy
    local function forget()
      call('HDEL', key .. ':results', name) --!write revive-forget
      did.redriven = did.redriven + 1
    end
    if queue ~= '' then
      owe(NOW, 'redrive:' .. child, 'redrive', queue, child, id, token, name) --!write revive-sent
      forget()
      return
    end
    local row = read(child)
    local state = names_parent(row, id) and row.state
    local verdict = state == 'dead' and redrive_now(child, row)
    if state and state ~= 'dead' and state ~= 'done' or verdict == 'ok' then --!guard revive-alive
      forget()
    elseif verdict == 'EMQSTATE sweeping' then --!guard revive-sweeping
      owe(NOW + 1000, 'redrive:' .. child, 'redrive', '', child, id, token, name) --!write revive-later
      forget()
    elseif policy == 'f' then --!guard revive-lost
      local why = verdict or how .. ', and not in the morgue'
      call('HSETNX', key, 'broken', 'child ' .. name .. ' (' .. child .. ') cannot be run again: ' .. why) --!write revive-broken
    end
  end)
  if over then
    call('HDEL', key, 'hold') --!write revived
    consider(id)
  end
  return over
end
-- A flow that was added in rounds: all of it is there, and may run; or nobody went on with it, and it goes.
function walks.hold()
  local taken_back = cursor ~= 'release'
  if taken_back then cursor = 'drop' end
  -- They leave the list after the last of them: a step that was refused is taken again.
  local all = call('LRANGE', key .. ':held', 0, bound - 1) --!bound held
  for _, held in ipairs(all) do
    local add = string.match(held, '^add:')
    if add and taken_back then
      strike(held)
    elseif add then
      -- Not one that a step has let go before it was refused: that may have been taken since.
      if tonumber(call('ZSCORE', OUTBOX, held)) == math.huge then --!guard held-again
        watch(OUTBOX, NOW)
        call('ZADD', OUTBOX, NOW, held) --!write held-add
      end
    else
      local f = call('HMGET', row_key(held), 'state', 'hold', 'children', 'due_ms', 'lane', 'priority')
      -- It may have been cancelled, or removed, meanwhile. One without a hold is of a step that was refused.
      local there = f[1] == 'waiting' and (f[2] == id or not (f[2] or taken_back)) --!guard held-there
      if there and taken_back then
        local row = read(held)
        row.parent, row.children = nil, nil
        remove_now(held, row)
        call('DEL', row_key(held) .. ':children', row_key(held) .. ':results') --!write held-gone
      elseif there then
        call('HDEL', row_key(held), 'hold') --!write unhold
        if f[3] then
          consider(held)
        else
          begin(held, { state = 'waiting', lane = f[5], priority = tonumber(f[6]) or 0 }, f[4] or '0')
        end
      end
    end
    did.released = did.released + 1
  end
  call('LTRIM', key .. ':held', #all, -1) --!write held-over
  return call('EXISTS', key .. ':held') == 0
end
-- A parent has waited for long: are its children still there?
function walks.reconcile()
  local f = call('HMGET', key, 'state', 'hold')
  if f[1] ~= 'waiting' then
    -- One that has gone on, unless it should never have been among those that wait.
    if call('ZREM', P .. 'waiting', id) == 1 then --!guard reconcile-misplaced
      tally(f[1] and 'torn' or 'dropped')
      emit(f[1] and 'torn' or 'dropped', id, 'set', 'waiting')
    end
    return true
  end
  if f[2] then return true end --!guard reconcile-held
  local over = scan('children', function(name, _, child, _, queue)
    if call('HEXISTS', key .. ':results', name) == 1 then return end --!guard reconcile-open
    -- What was not sent yet cannot have been heard.
    if call('HEXISTS', ENTRIES, 'redrive:' .. child) == 1 then return end --!guard reconcile-redriven
    if queue ~= '' then
      if call('HEXISTS', ENTRIES, 'add:' .. child) == 1 then return end --!guard reconcile-unsent
      owe(NOW, 'ask:' .. child, 'ask', queue, child, id, '', name) --!write reconcile-ask
      did.sent = did.sent + 1
      return
    end
    local row = read(child)
    if not row.state or not names_parent(row, id) then
      if call('HEXISTS', ENTRIES, 'tell:' .. child) == 0 then lose(name, child) end --!guard reconcile-lost
    elseif row.state == 'dead' or row.state == 'done' then
      tell_again(child, row) --!write reconcile-tell
    end
  end)
  if over and call('HGET', key, 'state') == 'waiting' then consider(id) end --!guard reconcile-settled
  return over
end

local walk = walks[kind]
local over = not walk or walk()
if over then
  strike(entry)
else
  gone_on()
end
bell()
flush_tally()
return { over and 0 or 1, did.cancelled, did.asked, did.sent, did.redriven, did.lost, did.released }
