-- purpose: the verdict of an item that failed; its error is told and counted.
-- defines: torn, MOST_ITEMS
local MOST_ITEMS = 256
local function torn(problem)
  tally('torn')
  if type(problem) == 'table' then problem = problem.err end
  return 'EMQTORN ' .. tostring(problem)
end
